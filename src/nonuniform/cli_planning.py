"""The commands of those who plan and operate: `plan`, `report`, `rack`, `boost`.

In: arguments. Out: what a command prints; `cli.py` makes it commands of `nonuniform`. Each calls
one function elsewhere and imports it only then. DESIGN "Outside contract".
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from nonuniform.errors import BadInput

if TYPE_CHECKING:
    from nonuniform.placement.policy import Batch

Json = Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")]
Lang = Annotated[str, typer.Option(metavar="en|ja", help="The language that a page begins with.")]


def plan(
    out: Annotated[Path, typer.Option(help="Folder for report.html, summary.json, the tables.")],
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO.toml]", help="As for simulate; or --job and --cluster."),
    ] = None,
    job: Annotated[
        list[Path] | None,
        typer.Option(help="Megatron-LM script, torchtitan, DeepSpeed or TOML; may be repeated."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Such as gb200-nvl72, dgx-h100.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs that are owned.")] = None,
    log: Annotated[Path | None, typer.Option(help="What failed when; see docs/plan.md.")] = None,
    log_gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs that the log is of, where not --gpus."),
    ] = None,
    failures: Annotated[
        str | None, typer.Option(metavar="NAME", help="A published rate, such as llama3.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="TOML with prices of your own.")] = None,
    currency: Annotated[str, typer.Option(help="Of what is printed.")] = "USD",
    fx: Annotated[
        str | None, typer.Option(metavar="RATE[@DATE]", help="Of that currency for one USD.")
    ] = None,
    measured: Annotated[
        list[Path] | None, typer.Option(metavar="STEPS.jsonl", help="A run's own step log.")
    ] = None,
    sacct: Annotated[Path | None, typer.Option(help="Output of sacct --parsable2.")] = None,
    batch: Annotated[
        str, typer.Option(metavar="fixed|shrink", help="Whether a step keeps its whole batch.")
    ] = "fixed",
    seeds: Annotated[int, typer.Option(min=2, help="Histories of failures.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one on each core.")] = 1,
    lang: Lang = "en",
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Go on without rows that cannot be read.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the plan in OUT.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing while it runs.")] = False,
) -> None:
    """Say whether nonuniform tensor parallelism is worth it, and what to buy and reserve."""
    from nonuniform.planner.prices import Exchange
    from nonuniform.planner.run import PlanArgs
    from nonuniform.planner.run import plan as run_plan
    from nonuniform.report import command

    command.check_language(lang)
    rate, dated = _rate(fx)
    args = PlanArgs(
        scenario=scenario,
        jobs=tuple(job or ()),
        cluster=cluster,
        gpus=gpus,
        log=log,
        log_gpus=log_gpus,
        failures=failures,
        prices=prices,
        exchange=Exchange(currency, rate, dated),
        batch=_batch(batch),
        measured=tuple(measured or ()),
        sacct=sacct,
        seeds=seeds,
        seed=seed,
        processes=jobs,
        skip_bad_rows=skip_bad_rows,
        overwrite=overwrite,
        command=shlex.join(["nonuniform", *sys.argv[1:]]),
    )
    run_plan(args, out, None if quiet else lambda told: typer.echo(told, err=True))
    page = command.report([out], lang)
    if not quiet:
        typer.echo(command.answer_of(out, lang))
    typer.echo(f"{page}")


def _batch(word: str) -> Batch:
    from nonuniform.placement.policy import Batch

    known: tuple[Batch, ...] = get_args(Batch)
    for batch in known:
        if batch == word:
            return batch
    raise BadInput(f"--batch {word}: expected {' or '.join(known)}")


def _rate(fx: str | None) -> tuple[float | None, str | None]:
    """Of "150" or "150@2026-11-01"."""
    if fx is None:
        return None, None
    number, _, date = fx.partition("@")
    try:
        return float(number), date or None
    except ValueError:
        raise BadInput(f"--fx {fx}: expected a number, such as 150 or 150@2026-11-01") from None


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Of train, simulate or plan.")
    ],
    lang: Lang = "en",
) -> None:
    """Write the page of a run, a simulation or a plan; of several runs, a comparison."""
    from nonuniform.report import command

    typer.echo(f"{command.report(folders, lang)}")


def rack(
    file: Annotated[Path, typer.Argument(metavar="RACK.toml", help="Rack, cooling, losses.")],
    spec: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a procurement sheet, Markdown.")
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(metavar="SCENARIO.toml", help="How often its failures call for a boost."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a rack must have so that survivors of a loss can be boosted."""
    from nonuniform.power import rack_command
    from nonuniform.scenario.boosted import boosted, boosted_text

    if scenario is not None and spec is not None and spec == scenario:
        raise BadInput(f"--spec {spec}: is the file of --scenario")
    values, text = rack_command.rack(file, spec)
    if scenario is not None:
        values["history"] = boosted(file, scenario)
        text = f"{text}\n\n{boosted_text(values['history'])}"
    typer.echo(json.dumps(values) if as_json else text)


def boost(
    file: Annotated[Path, typer.Argument(metavar="RACK.toml", help="The rack.")],
    failed: Annotated[int, typer.Option(min=0, help="Lost GPUs of the domain.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say it, set nothing.")] = False,
    actuator: Annotated[str, typer.Option(help="dry-run, nvml or command.")] = "dry-run",
    lease_s: Annotated[
        float, typer.Option(help="Given back after so long without a sign of life.")
    ] = 30.0,
    gpus: Annotated[
        str | None, typer.Option(help="Names of the GPUs that are set from here, by commas.")
    ] = None,
    shelves_lost: Annotated[int, typer.Option(min=0, help="Power shelves that are down.")] = 0,
    record: Annotated[
        Path | None, typer.Option("--file", help="Where it is written what must be given back.")
    ] = None,
    set_command: Annotated[str, typer.Option(help="With {gpu} and {watts}; no shell.")] = "",
    read_command: Annotated[str, typer.Option(help="With {gpu}; prints watts.")] = "",
    valve_set_command: Annotated[str, typer.Option(help="With {gpu} and {flow} in l/min.")] = "",
    valve_read_command: Annotated[str, typer.Option(help="With {gpu}; prints l/min.")] = "",
    l_per_min_per_w: Annotated[float, typer.Option(help="Coolant flow that a watt needs.")] = 0.0,
    telemetry: Annotated[
        Path | None, typer.Option(help="JSON with news of the GPUs; see docs/power.md.")
    ] = None,
    stale_s: Annotated[
        float, typer.Option(help="A boost ends so long after the last news.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Say which boost keeps the survivors up, and hold it until Ctrl-C."""
    from nonuniform.power import boost_command as command
    from nonuniform.power.actuators.choose import ActuatorChoice

    choice = ActuatorChoice(
        actuator,
        set_command=set_command,
        read_command=read_command,
        valve_set_command=valve_set_command,
        valve_read_command=valve_read_command,
        l_per_min_per_w=l_per_min_per_w,
    )
    named = None if gpus is None else tuple(gpus.split(","))
    kept = record or command.default_file()
    wishes = command.BoostWishes(
        failed, lease_s, choice, kept, named, shelves_lost, telemetry, stale_s
    )
    made = command.plan(file, wishes)
    typer.echo(json.dumps(command.plan_json(made)) if as_json else command.plan_text(made))
    if not dry_run:
        command.hold(made, wishes, typer.echo)
