"""SCENARIO files: the smallest one, what is filled in, and the one line for what is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.sources.catalog import catalog_names
from nonuniform.errors import BadInput
from nonuniform.placement.policy import PolicyOptions
from nonuniform.scenario.build import (
    causes_of,
    fleet_of,
    job_of,
    log_source,
    model_source,
    options_of,
    seeds_of,
)
from nonuniform.scenario.explain import explain
from nonuniform.scenario.keys import parse_set, parse_sweep, with_keys
from nonuniform.scenario.read import load_scenario
from nonuniform.scenario.sections import PolicySection, Scenario
from nonuniform.toml_file import read_toml

# As the outside contract has it.
SMALLEST = """
[cluster]
gpus = 32768
domain = 32
[job]
degree = 32
stages = 8
sequences_per_replica = 8
[failures]
rate_per_gpu_day = 4.736e-4
blast_gpus = 1
hardware = { share = 0.78, repair_h = 120 }
software = { share = 0.22, repair_h = 3 }
[policies.ntp]
degrees = [32, 30, 28]
[policies.ntp-pw]
[run]
days = 365
seeds = 100
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "SCENARIO.toml"
    path.write_text(text)
    return path


def load(folder: Path, text: str = SMALLEST, **overrides: object) -> Scenario:
    return load_scenario(write(folder, text), overrides)


def refusal(folder: Path, text: str, overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(BadInput) as caught:
        load_scenario(write(folder, text), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_the_smallest_file_becomes_the_values_of_the_simulator(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    fleet, job = fleet_of(scenario), job_of(scenario)
    assert (fleet.domains, fleet.leftover, fleet.node) == (1024, 0, 8)
    assert (job.degree, job.stages, job.sequences_per_replica, job.replicas) == (32, 8, 8, 0)
    assert options_of("ntp", scenario) == PolicyOptions("ntp", degrees=(32, 30, 28))
    assert options_of("ntp-pw", scenario) == PolicyOptions("ntp-pw")
    hardware, software = causes_of(scenario.failures)
    assert hardware.rate_per_day == pytest.approx(0.78 * 4.736e-4)
    assert (hardware.repair.mean_h, software.repair.mean_h) == (120, 3)
    source = model_source(scenario)
    assert source.hours == 24 * 365
    # 32,768 GPUs x 4.736e-4 x 365 days = 5,664 failures; five standard deviations are 376.
    assert len(source(1)) == pytest.approx(5664, abs=376)
    assert source(1) == source(1)
    assert source(1) != source(2)


def test_without_policies_all_four_are_compared(tmp_path: Path) -> None:
    text = SMALLEST.replace("[policies.ntp]\ndegrees = [32, 30, 28]\n[policies.ntp-pw]\n", "")
    scenario = load(tmp_path, text)
    assert {name: p.kind for name, p in scenario.policies.items()} == {
        kind: kind for kind in ("uniform", "dp-drop", "ntp", "ntp-pw")
    }


def test_every_option_of_a_policy_is_a_key(tmp_path: Path) -> None:
    assert {f.name for f in fields(PolicySection)} == {f.name for f in fields(PolicyOptions)}
    text = SMALLEST + (
        '[policies.mine]\nkind = "ntp"\nmin_degree = 16\none_degree = true\nbatch = "shrink"\n'
        'grain = "token"\nbatch_at = { "30" = 7, "28" = 6 }\npacking = "spread"\n'
        'speed_at = { "30" = 0.9 }\n'
        'spare_domains = 8\nspare_unit = "domain"\nrepack = "next-checkpoint"\n'
        "detect_s = 1\ncheckpoint_every_s = 60"
    )
    assert options_of("mine", load(tmp_path, text)) == PolicyOptions(
        "ntp",
        min_degree=16,
        one_degree=True,
        grain="token",
        batch_at=((28, 6), (30, 7)),
        speed_at=((30, 0.9),),
        packing="spread",
        spare_domains=8,
        spare_unit="domain",
        repack="next-checkpoint",
        detect_s=1.0,
        checkpoint_every_s=60.0,
    )


def test_costs_are_those_of_the_transition_unless_the_policy_says(tmp_path: Path) -> None:
    text = SMALLEST + "[transition]\ndetect_s = 3\nrestart_s = 600\n"
    text = text.replace("degrees = [32", "restart_s = 0\ndegrees = [32")
    ntp, boosted = (options_of(name, load(tmp_path, text)) for name in ("ntp", "ntp-pw"))
    assert (ntp.detect_s, ntp.restart_s) == (3, 0)
    assert (boosted.detect_s, boosted.restart_s) == (3, 600)


def test_the_degree_is_that_of_the_domain_where_none_is_given(tmp_path: Path) -> None:
    text = SMALLEST.replace("degree = 32\n", "").replace("degrees = [32, 30, 28]\n", "")
    for domain in (8, 32, 72):
        assert job_of(load(tmp_path, text, **{"cluster.domain": domain})).degree == domain


@pytest.mark.parametrize("name", catalog_names())
def test_every_published_rate_can_be_asked_for(tmp_path: Path, name: str) -> None:
    text = SMALLEST.replace(
        "rate_per_gpu_day = 4.736e-4\nblast_gpus = 1\n", f'catalog = "{name}"\n'
    )
    text = "\n".join(line for line in text.splitlines() if "share =" not in line)
    scenario = load(tmp_path, text)
    per_day = sum(c.failures_per_day(fleet_of(scenario)) for c in causes_of(scenario.failures))
    assert 5 < per_day < 60
    tripled = load(tmp_path, text, **{"failures.rate_factor": 3.0})
    three = sum(c.failures_per_day(fleet_of(tripled)) for c in causes_of(tripled.failures))
    assert three == pytest.approx(3 * per_day)


def test_causes_of_every_kind(tmp_path: Path) -> None:
    text = """
[cluster]
gpus = 720
domain = 72
[job]
sequences_per_replica = 4
[failures]
lemons = { share = 0.1, factor = 5 }
bursts = { share = 0.2, failures = 3, within_h = 12 }
steady_start = true
[[failures.cause]]
name = "gpu"
rate_per_gpu_day = 1e-3
repair = { kind = "lognormal", median_h = 34, sigma = 1.5 }
[[failures.cause]]
name = "switch"
rate_per_domain_day = 1e-2
blast = "tray"
repair = { kind = "weibull", mean_h = 10, shape = 0.8 }
[[failures.cause]]
name = "host"
rate_per_1000_node_days = 6.5
blast = "node"
repair = { kind = "empirical", samples_h = [1, 2, 9] }
"""
    scenario = load(tmp_path, text)
    gpu, switch, host = causes_of(scenario.failures)
    fleet = fleet_of(scenario)
    assert [c.failures_per_day(fleet) for c in (gpu, switch, host)] == pytest.approx(
        [0.72, 0.1, 90 * 6.5e-3]
    )
    assert [c.block(fleet) for c in (gpu, switch, host)] == [1, 72, 8]
    assert [c.repair.mean_h for c in (switch, host)] == pytest.approx([10, 4])
    source = model_source(scenario)
    assert source.steady_start
    assert source(1).causes == ("gpu", "switch", "host")


LOG = """
[cluster]
gpus = 64
domain = 8
[job]
sequences_per_replica = 8
[failures.log]
path = "log.csv"
expand = "node"
clock = { unit = "hour" }
nodes = { names = ["a", "b"] }
window = { start = 0, end = 100 }
[policies.ntp]
"""


def test_a_log_lies_beside_the_file_and_happened_once(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("node,start,end\na,1,5\nb,2,90\n")
    scenario = load(tmp_path, LOG)
    source, report = log_source(scenario, skip_bad_rows=False)
    trace = source(1)
    assert (trace.hours, trace.first_gpu.tolist(), trace.gpus.tolist()) == (100, [0, 8], [8, 8])
    assert source(7) is trace
    assert report.failures == 2
    assert seeds_of(scenario) == 1


def test_a_log_that_is_scattered_has_seeds(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("node,start,end\na,1,5\nb,2,90\n")
    text = LOG.replace('nodes = { names = ["a", "b"] }', 'nodes = { order = "random" }')
    scenario = load(tmp_path, text)
    source, _ = log_source(scenario, skip_bad_rows=False)
    assert seeds_of(scenario) == 100
    assert source(3) == source(3)
    assert len({tuple(source(seed).first_gpu.tolist()) for seed in range(1, 9)}) > 1


def test_what_was_assumed_is_marked(tmp_path: Path) -> None:
    path = write(tmp_path, SMALLEST.replace("gpus = 32768", "gpus = 4096").replace("32\n", "72\n"))
    with pytest.raises(BadInput):  # degrees of 32 in a domain of 72 are legal, 4,096 are not 8 x 72
        load_scenario(path, {"job.stages": 100})
    values = with_keys(read_toml(path), {})
    facts = explain(load_scenario(path), values)
    assert facts[0]["text"] == "4,096 GPUs: 56 domains of 72 GPUs + 64 GPUs left over"
    assumed = [fact["text"] for fact in facts if fact["assumed"]]
    assert "nodes of 8 GPUs" in assumed
    assert "a change of placement costs nothing" in assumed
    values = with_keys(values, {"cluster.node": 4, "failures.steady_start": False})
    values = with_keys(values, {"policies.ntp-pw.max_speedup": 1.2, "transition.regroup_s": 1})
    path.write_text(SMALLEST)
    more = {"transition.regroup_s": 1.0, "policies.ntp-pw.max_speedup": 1.2}
    facts = explain(load_scenario(path, more), values)
    assert [fact["text"] for fact in facts if fact["assumed"]] == [
        "all stages take equally long",
        "independent of each other, all GPUs alike",
        "a hurt replica is as fast as the share of GPUs that it has left",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("gpus = 32768", "gpus = 3.5"), "[cluster] gpus: must be an integer, got 3.5"),
        (
            ("gpus = 32768", "gpu = 3"),
            "[cluster] gpu: unknown key, did you mean gpus? (and 1 more)",
        ),
        (
            ("gpus = 32768", "gpus = 16"),
            "[cluster] gpus = 16 do not fill one domain of domain = 32",
        ),
        (("[job]", "[jobs]"), "[jobs]: unknown section, did you mean [job]? (and 1 more)"),
        (("[cluster]", "x = 1\n[cluster]"), "x: unknown section, known are [cluster], [job]"),
        (("degree = 32", "degree = 64"), "[job] degree = 64 is more than [cluster] domain = 32"),
        (("stages = 8", "stages = 8\nlayers = 4"), "[job] layers = 4 is fewer than stages = 8"),
        (("stages = 8", "stages = 8\nreplicas = 129"), "[job] replicas = 129 of 8 stages"),
        (("blast_gpus = 1", 'blast = "rack"'), "[failures] blast: must be 'gpu', 'board', 'node'"),
        (("blast_gpus = 1", 'blast_gpus = 1\nblast = "gpu"'), "cannot be together with blast"),
        (("rate_per_gpu_day = 4.736e-4", ""), "[failures]: does not say how often something fails"),
        (
            ("rate_per_gpu_day = 4.736e-4", 'rate_per_gpu_day = 1\ncatalog = "llama3"'),
            "[failures] catalog: cannot be together with rate_per_gpu_day; choose one",
        ),
        (("rate_per_gpu_day = 4.736e-4", "rate_per_gpu_day = -1"), "must be at least 0, got -1"),
        (
            ("share = 0.78", "share = 0.7"),
            "shares: must add up to 1, got hardware.share = 0.7 + software.share = 0.22",
        ),
        (("share = 0.78,", ""), "[failures.hardware] share: is missing"),
        ((", repair_h = 120", ""), "[failures.hardware] repair_h: is missing"),
        (("repair_h = 120", "repair_h = 0"), "[failures.hardware] repair_h: must be more than 0"),
        (
            ("repair_h = 120", 'repair = { kind = "weibull", shape = 1 }'),
            "[failures.hardware.repair] kind: weibull needs scale_h, shape or mean_h, shape, got",
        ),
        (("degrees = [32", "degrees = [33"), "[policies.ntp] degrees = [33, 30, 28] go above"),
        (("degrees = [32", "degrees = [0"), "[policies.ntp] degrees[0]: must be at least 1, got 0"),
        (("[policies.ntp]", "[policies.np]"), "[policies.np] kind: is missing, must be one of"),
        (("degrees =", "degree ="), "[policies.ntp] degree: unknown key, did you mean degrees?"),
        (
            ("[policies.ntp-pw]", "[policies.dp-drop]\nmin_degree = 3"),
            "[policies.dp-drop] min_degree: has a meaning only for ntp and ntp-pw, not for dp-drop",
        ),
        (
            ("[policies.ntp-pw]", '[policies.ntp-pw]\nrepack = "next-checkpoint"'),
            '[policies.ntp-pw] repack = "next-checkpoint" needs checkpoint_every_s above 0',
        ),
        (("[policies.ntp-pw]", "[policies.ntp-pw]\nspare_domains = 1020"), "1020 of them spare"),
        (
            ("[policies.ntp-pw]", '[policies.x]\nkind = "n"'),
            "[policies.x] kind: must be 'uniform',",
        ),
        (("[policies.ntp-pw]", "[policies]\nx = 3"), "[policies] x: must be a table, got 3"),
        (("seeds = 100", "seeds = 0"), "[run] seeds: must be at least 1, got 0"),
        (("days = 365", "days = inf"), "[run] days: must be a finite number"),
        (
            ("[policies.ntp]", '[[failures.cause]]\nname = "x"\nrepair_h = 1\n[policies.ntp]'),
            "[failures.cause[0]]: needs one of rate_per_gpu_day, ",
        ),
        (
            ("[policies.ntp]", '[[failures.cause]]\nname = "x"\nrepai = 1\n[policies.ntp]'),
            "[failures.cause[0]] repai: unknown key, did you mean repair?",
        ),
        (
            ("[policies.ntp]", '[failures.log]\npath = "x.csv"\n[policies.ntp]'),
            "[failures] log: cannot be together with rate_per_gpu_day; choose one",
        ),
    ],
)
def test_a_wrong_value_is_one_line_with_section_key_and_value(
    tmp_path: Path, change: tuple[str, str], line: str
) -> None:
    text = SMALLEST.replace(*change, 1)
    assert text != SMALLEST
    message = refusal(tmp_path, text)
    assert message.startswith("SCENARIO.toml: ")
    assert line in message


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (('unit = "hour"', 'unit = "week"'), "[failures.log.clock] unit: must be 'iso', 'day'"),
        (
            ('names = ["a", "b"]', 'names = ["a", "a"]'),
            '[failures.log] nodes.names holds "a" twice',
        ),
        (("window =", "windows ="), "[failures.log] windows: unknown key, did you mean window?"),
        (
            ("[failures.log]", "[run]\nseeds = 3\n[failures.log]"),
            "[run] seeds: a log happened once",
        ),
        (
            ("[failures.log]", "[run]\ndays = 3\n[failures.log]"),
            "[run] days: has no meaning beside",
        ),
        (
            ("[failures.log]", "[failures]\nrepair_h = 1\n[failures.log]"),
            "[failures] repair_h: has no meaning beside log",
        ),
    ],
)
def test_how_a_log_is_read_is_checked_too(
    tmp_path: Path, change: tuple[str, str], line: str
) -> None:
    assert line in refusal(tmp_path, LOG.replace(*change, 1))


def test_the_catalog_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    text = SMALLEST.split("rate_per")[0] + 'catalog = "lama3"\n'
    line = refusal(tmp_path, text)
    assert line.startswith('SCENARIO.toml: [failures] catalog = "lama3", expected one of llama3')


def test_a_value_of_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    line = refusal(tmp_path, SMALLEST, {"policies.ntp.degrees": [0]})
    assert line == "command line: [policies.ntp] degrees[0]: must be at least 1, got 0"
    line = refusal(tmp_path, SMALLEST, {"cluster.gpus.x": 1})
    assert line.startswith("command line: cluster.gpus.x: ")


# ----------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("flag", "key", "value"),
    [
        ("run.days=30", "run.days", 30),
        ("failures.rate_per_gpu_day = 1e-3", "failures.rate_per_gpu_day", 1e-3),
        ("policies.ntp.grain=token", "policies.ntp.grain", "token"),
        ('policies.ntp.grain="token"', "policies.ntp.grain", "token"),
        ("failures.steady_start=true", "failures.steady_start", True),
        ("policies.ntp.degrees=[32,30]", "policies.ntp.degrees", [32, 30]),
        (
            "failures.hardware={share=1, repair_h=2}",
            "failures.hardware",
            {"share": 1, "repair_h": 2},
        ),
        ("failures.log.path=a=b.csv", "failures.log.path", "a=b.csv"),
    ],
)
def test_a_value_is_read_as_toml_or_is_a_string(flag: str, key: str, value: object) -> None:
    assert parse_set([flag]) == {key: value}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8,32,72", [8, 32, 72]),
        ("8", [8]),
        ("sequence,token", ["sequence", "token"]),
        ("[32,30],[32,28]", [[32, 30], [32, 28]]),
        ("1e-3, 2e-3", [1e-3, 2e-3]),
        ("never,1", ["never", 1]),
    ],
)
def test_a_sweep_has_a_list_of_values(text: str, values: list[object]) -> None:
    assert parse_sweep([f"a.b={text}"]) == {"a.b": values}


@pytest.mark.parametrize("flag", ["run.days", "=3", "run.days=", "days=3", "run..days=3", ".x=3"])
def test_a_flag_without_key_or_value_is_refused(flag: str) -> None:
    with pytest.raises(BadInput, match=r"--set .*: (must be key=value|the key must name)"):
        parse_set([flag])
    with pytest.raises(BadInput, match="--sweep"):
        parse_sweep([flag])


def test_a_key_is_given_once() -> None:
    with pytest.raises(BadInput, match=r"run\.days is given twice"):
        parse_set(["run.days=1", "run.days=2"])
    with pytest.raises(BadInput, match="no value"):
        parse_sweep(["run.days=,"])


@given(st.integers(-(10**9), 10**9) | st.booleans() | st.text("abcxyz-_", min_size=1, max_size=9))
def test_whatever_is_set_is_what_is_there_then(value: object) -> None:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    parsed = parse_set([f"a.b.c={shown}"])["a.b.c"]
    changed = with_keys({"a": {"b": {"d": 1}}}, {"a.b.c": parsed})
    if shown not in ("inf", "nan"):
        assert changed == {"a": {"b": {"d": 1, "c": value}}}
