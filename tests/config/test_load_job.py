"""JOB files: the defaults that are filled in, and the one line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonuniform.config import ModelConfig, load_job
from nonuniform.errors import BadInput

SMALLEST = """
[model]
layers = 4
hidden = 192
heads = 12
[parallel]
replicas = 2
degree = 4
[batch]
sequences = 12
length = 128
[run]
steps = 60
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "JOB.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str, overrides: dict[str, object] | None = None) -> str:
    """The error line, without the folder's name in front."""
    with pytest.raises(BadInput) as caught:
        load_job(write(folder, text), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_the_smallest_file_gets_every_default(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, SMALLEST))
    assert (job.model.kv_heads, job.model.head_dim, job.model.ffn) == (12, 16, 512)
    assert (job.model.vocab, job.model.tied) == (256, True)
    assert (job.parallel.min_degree, job.parallel.allow_empty) == (1, False)
    assert (job.batch.accumulation, job.run.val_sequences) == (1, 12)
    assert (job.run.seed, job.run.dtype, job.run.nonfinite) == (1, "float32", "skip")
    assert (job.optimizer.lr, job.optimizer.clip_norm) == (3e-3, 2.0)
    assert job.data.text == ()


@pytest.mark.parametrize(("hidden", "ffn"), [(192, 512), (96, 256), (100, 272), (6, 16)])
def test_ffn_is_eight_thirds_of_hidden_up_to_a_multiple_of_16(hidden: int, ffn: int) -> None:
    assert ModelConfig(layers=1, hidden=hidden, heads=1).ffn == ffn


def test_what_is_given_is_not_derived(tmp_path: Path) -> None:
    given = "heads = 33\nkv_heads = 2\nhead_dim = 8\nffn = 7"
    job = load_job(write(tmp_path, SMALLEST.replace("heads = 12", given)))
    assert (job.model.kv_heads, job.model.head_dim, job.model.ffn) == (2, 8, 7)
    shape = job.model.shape()
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.ffn) == (33, 2, 8, 7)


def test_overrides_replace_keys_of_the_file(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, SMALLEST), {"run.steps": 7, "data.holdout": 0.0})
    assert (job.run.steps, job.data.holdout) == (7, 0.0)


def test_the_norm_of_clipping_may_be_infinite(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, SMALLEST + "[optimizer]\nclip_norm = inf\nlr = 1"))
    assert job.optimizer.clip_norm == float("inf")


def test_globs_stay_as_written_and_their_root_is_the_folder_of_the_file(tmp_path: Path) -> None:
    text = SMALLEST + '[data]\ntext = ["corpus/*.txt"]\n'
    job = load_job(write(tmp_path, text))
    assert (job.data.text, job.data.root) == (("corpus/*.txt",), str(tmp_path))
    assert load_job(write(tmp_path, text + 'root = "../a"')).data.root == str(tmp_path.parent / "a")
    assert load_job(write(tmp_path, text + 'root = "/data"')).data.root == "/data"


def test_the_root_is_absolute_also_for_a_file_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SMALLEST)
    monkeypatch.chdir(tmp_path)
    assert load_job(Path("JOB.toml")).data.root == str(tmp_path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("heads = 12", "heads = 12.0"), "[model] heads: must be an integer, got 12.0"),
        (("heads = 12", 'heads = "12"'), '[model] heads: must be an integer, got "12"'),
        (("heads = 12", "heads = true"), "[model] heads: must be an integer, got true"),
        (("heads = 12", "heads = nan"), "[model] heads: must be an integer, got NaN"),
        (("heads = 12", "heads = 0"), "[model] heads: must be at least 1, got 0"),
        (("heads = 12", ""), "[model] heads: is missing"),
        (
            ("heads = 12", "head = 12"),
            "[model] head: unknown key, did you mean heads? (and 1 more)",
        ),
        (
            ("[batch]", "[batches]"),
            "[batches]: unknown section, did you mean [batch]? (and 1 more)",
        ),
        (
            ("[model]", "x = 1\n[model]"),
            "x: unknown section, known are [model], [parallel], [batch]",
        ),
        (("steps = 60", ""), "[run] steps: is missing"),
        (("steps = 60", "steps = 0"), "[run] steps: must be at least 1, got 0"),
        (("steps = 60", "steps = 6\nport = 65536"), "[run] port: must be at most 65535, got 65536"),
        (
            ("steps = 60", 'steps = 6\ndtype = "float16"'),
            "[run] dtype: must be 'float32' or 'float64', got \"float16\"",
        ),
        (("steps = 60", 'steps = 6\naddress = ""'), "[run] address: must be a string that is not"),
        (("steps = 60", "steps = 6\nbucket_mb = inf"), "[run] bucket_mb: must be a finite number"),
        (
            ("steps = 60", "steps = 6\nhang_timeout_s = 0.4"),
            "[run] hang_timeout_s: must be at least 0.5, got 0.4",
        ),
        (
            ("steps = 60", "steps = 6\nhang_timeout_s = 1000001"),
            "[run] hang_timeout_s: must be at most 1e+06, got 1000001",
        ),
        (("steps = 60", "steps = 6\nhang_timeout_s = inf"), "hang_timeout_s: must be"),
        (("steps = 60", "steps = 6\nhang_timeout_s = nan"), "hang_timeout_s: must be"),
        (
            ("steps = 60", 'steps = 6\naddress = "a\\u0000"'),
            '[run] address: must be a string without a NUL, got "a\\u0000"',
        ),
        (
            ("[model]", '[data]\nroot = "a\\u0000b"\n[model]'),
            '[data] root: must be a string without a NUL, got "a\\u0000b"',
        ),
        (("[model]", '[data]\nroot = ""\n[model]'), "[data] root: must be a string that is not"),
        (
            ("[model]", '[data]\ntext = ["*\\u0000"]\n[model]'),
            "[data] text[0]: must be a string without a NUL",
        ),
        (("steps = 60", "steps = 6\ncheck_units = 1"), "check_units: must be true or false, got 1"),
        (("[model]", "data = 3\n[model]"), "[data]: must be a table, got 3"),
        (
            ("[model]", '[data]\ntext = "a.txt"\n[model]'),
            '[data] text: must be a list, got "a.txt"',
        ),
        (
            ("[model]", '[data]\ntext = ["a", 2]\n[model]'),
            "[data] text[1]: must be a string, got 2",
        ),
        (("[model]", "[data]\nholdout = 1\n[model]"), "[data] holdout: must be less than 1, got 1"),
        (("[model]", "[optimizer]\nclip_norm = 3\n[model]"), "must be 1, 2 or inf, got 3"),
    ],
)
def test_a_wrong_value_is_one_line_with_section_key_and_value(
    tmp_path: Path, change: tuple[str, str], line: str
) -> None:
    message = refusal(tmp_path, SMALLEST.replace(*change))
    assert message.startswith("JOB.toml: ")
    assert line in message


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        (("hidden = 192", "hidden = 100"), "heads = 12, hidden = 100"),
        (("hidden = 192", "hidden = 36"), "head_dim: must be even"),
        (("heads = 12", "heads = 12\nhead_dim = 5"), "got 5"),
        (("heads = 12", "heads = 12\nkv_heads = 13"), "at most heads = 12, got 13"),
        (("heads = 12", "heads = 12\nvocab = 255"), "at least 256 (tokens are bytes), got 255"),
        (("sequences = 12", "sequences = 1"), "sequences = 1 for replicas = 2"),
        (
            ("sequences = 12", "sequences = 12\naccumulation = 7"),
            "accumulation = 7 x replicas = 2 > sequences = 12",
        ),
    ],
)
def test_values_that_disagree_are_named_with_their_numbers(
    tmp_path: Path, change: tuple[str, str], numbers: str
) -> None:
    message = refusal(tmp_path, SMALLEST.replace(*change))
    assert message.startswith("JOB.toml: [")
    assert numbers in message


def test_the_bounds_of_the_hang_timeout_belong_to_it(tmp_path: Path) -> None:
    for seconds in (0.5, 1_000_000):
        text = SMALLEST + f"hang_timeout_s = {seconds}\n"
        assert load_job(write(tmp_path, text)).run.hang_timeout_s == seconds


def test_a_root_that_leads_in_a_circle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    line = refusal(tmp_path, SMALLEST + '[data]\nroot = "circle/x"\n')
    assert line.startswith("JOB.toml: [data] root: cannot be followed: ")


def test_a_min_degree_above_the_degree_is_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, SMALLEST.replace("degree = 4", "degree = 4\nmin_degree = 5"))
    assert line == ("JOB.toml: parallel.min_degree = 5: must be between 1 and parallel.degree = 4")


def test_several_complaints_are_counted(tmp_path: Path) -> None:
    text = SMALLEST.replace("heads = 12", "heads = 0").replace("degree = 4", "degree = 0")
    assert refusal(tmp_path, text).endswith("got 0 (and 1 more)")
    text = SMALLEST.replace("hidden = 192", "hidden = 100").replace(
        "sequences = 12", "sequences = 1"
    )
    assert refusal(tmp_path, text).endswith("(and 1 more)")


def test_an_empty_file_names_the_first_section_that_is_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path, "") == "JOB.toml: [model]: is missing (and 3 more)"


def test_a_bad_override_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    line = refusal(tmp_path, SMALLEST, {"run.steps": 0})
    assert line == "command line: [run] steps: must be at least 1, got 0"


def test_a_degree_that_leaves_a_rank_empty_is_refused_with_the_legal_ones(tmp_path: Path) -> None:
    text = SMALLEST.replace("heads = 12", "heads = 3").replace("hidden = 192", "hidden = 48")
    line = refusal(tmp_path, text)
    assert "heads = 3" in line
    assert line.endswith("1, 2, 3")
    allowed = text.replace("degree = 4", "degree = 4\nallow_empty = true")
    assert load_job(write(tmp_path, allowed)).parallel.allow_empty


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent\.toml: no such file"):
        load_job(tmp_path / "absent.toml")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        load_job(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(BadInput, match=r"is not UTF-8 text \(byte 5\)"):
        load_job(path)


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    assert "not valid TOML" in refusal(tmp_path, "[model]\nlayers 4\n")
    assert "line 2" in refusal(tmp_path, "[model]\nlayers 4\n")


def test_a_number_of_thousands_of_digits_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "JOB.toml"
    path.write_text("[run]\nsteps = " + "9" * 5000 + "\n")
    with pytest.raises(BadInput, match=r"JOB\.toml: is not valid TOML") as caught:
        load_job(path)
    assert "\n" not in str(caught.value)
