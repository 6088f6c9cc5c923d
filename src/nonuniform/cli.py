"""The command line: `nonuniform COMMAND`.

In: arguments. Out: what the command prints, and its exit status: 0 done, 1 whoever read the output
has gone, 2 bad input, 3 the run could not go on, 130 interrupted before it began. Each command
calls one function elsewhere and imports it only then, so that the commands that plan work where
torch is not installed. DESIGN "Outside contract".
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from nonuniform import __version__, cli_planning
from nonuniform.errors import BadInput, NonuniformError

READER_GONE, INTERRUPTED = 1, 130
# UsageError of click, or of the copy of click that newer versions of typer bring along.
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    help="Train with replicas of different degree: when a GPU dies, its replica only gets slower.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help stays plain text, for people and for scripts
)


for _command in (
    cli_planning.plan,
    cli_planning.report,
    cli_planning.rack,
    cli_planning.boost,
):
    app.command()(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; what a person did wrong is one line on stderr, never a traceback."""
    try:
        sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))
    except NonuniformError as error:
        _complain(str(error), error.exit_status)
    except _USAGE_ERROR as error:
        _complain(_one_line(error), BadInput.exit_status)
    except KeyboardInterrupt:
        _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        if _stdout_has_a_reader():
            raise  # it was another pipe: a fault of ours
        _discard(sys.stdout)
        sys.exit(READER_GONE)


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("nonuniform", arguments) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    return 0


def _one_line(error: Any) -> str:
    """What is wrong with the arguments, and where to read how they are meant."""
    said = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "nonuniform"
    return f"{said} (see {command} --help)"


def _complain(line: str, status: int) -> NoReturn:
    try:
        typer.echo(f"nonuniform: {line}", err=True)
    except OSError:  # nobody reads it
        _discard(sys.stderr)
    sys.exit(status)


def _discard(stream: TextIO) -> None:
    from nonuniform.view.observer import discard

    discard(stream)


def _stdout_has_a_reader() -> bool:
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # not a file of the system
        return True
    return not any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nonuniform {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def layout(
    units: Annotated[int, typer.Option(min=1, help="Units of one module, such as KV heads.")],
    base: Annotated[int, typer.Option(min=1, help="The base degree.")],
    degree: Annotated[int, typer.Option(min=1, help="The degree after the losses.")],
    unit_bytes: Annotated[int, typer.Option(min=1, help="Bytes of one unit.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
) -> None:
    """Show how units are cut at a degree, and what moves."""
    from nonuniform.reshard.layout_report import layout_report

    report = layout_report(units, base, degree, unit_bytes)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        width = max(map(len, report))
        for name, value in report.items():
            typer.echo(f"{name:{width}}  {_readable(value)}")


def _readable(value: int | float | list[int]) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


@app.command()
def train(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job.")],
    out: Annotated[Path, typer.Option(help="Folder for steps.jsonl, events.jsonl, summary.json.")],
    steps: Annotated[int | None, typer.Option(help="Instead of [run] steps.")] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(metavar="gpu=R/I@step=S", help="Kill the process of a GPU; may be repeated."),
    ] = None,
    returns: Annotated[
        list[str] | None,
        typer.Option("--return", metavar="gpu=R/I@step=S", help="Bring a failed GPU back."),
    ] = None,
    drain: Annotated[
        list[str] | None,
        typer.Option(metavar="gpu=R/I@step=S", help="Take a working GPU out; may be repeated."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in OUT from its newest checkpoint."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in OUT.")] = False,
    dashboard: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve a page of the run; on loopback by default."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing while it runs.")] = False,
) -> None:
    """Train the job, through failures and returns of GPUs."""
    from nonuniform.config import load_job, parse_schedule
    from nonuniform.view.live import choose_observer
    from nonuniform.view.observer import NullObserver, RunObserver

    job = load_job(job_file, {} if steps is None else {"run.steps": steps})
    schedule = parse_schedule(fail or [], returns or [], job, drain or [])
    if resume and overwrite:
        raise BadInput("--resume and --overwrite: choose one, to go on or to begin anew")
    _require_torch()
    from nonuniform.train import run

    with ExitStack() as beside:
        if dashboard is not None:
            from nonuniform.report.dashboard import open_dashboard

            served = beside.enter_context(open_dashboard(dashboard, out, job.run.steps))
            typer.echo(f"{served.url}", err=True)
        observer: RunObserver = NullObserver() if quiet else choose_observer()
        status = run.train(
            job, out, schedule, overwrite=overwrite, observer=observer, resume=resume
        )
    raise typer.Exit(status)


@app.command()
def simulate(
    scenario_file: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="Cluster, job, failures, policies.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for summary.json and the tables.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="Instead of [run] seeds.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1: one for each core.")] = 1,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="key=value", help="Replace a key of the file; repeatable."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="key=v1,v2", help="Try several values; repeated: all combinations."),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Go on without the wrong rows of a log.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results in OUT.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Show what failures cost a cluster, by policy."""
    from nonuniform.scenario.keys import parse_set, parse_sweep
    from nonuniform.scenario.run import Wishes, simulate_file
    from nonuniform.view.simulation import QuietView, SimulationView, TableView

    overrides = parse_set(changes or []) | ({} if seeds is None else {"run.seeds": seeds})
    axes = parse_sweep(sweep or [])
    view: SimulationView = QuietView() if quiet else TableView()
    try:
        wishes = Wishes(overrides, axes, jobs, skip_bad_rows, overwrite)
        simulate_file(scenario_file, out, wishes, view)
    finally:
        view.close()


@app.command()
def paper(
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the page of the docs.")
    ] = None,
) -> None:
    """Redo the published figures of the NTP paper."""
    from dataclasses import asdict

    from nonuniform.sim.paper.render import markdown, rows
    from nonuniform.view.paper import print_paper

    table = rows()
    if markdown_file is None:
        print_paper([asdict(row) for row in table])
        return
    try:
        markdown_file.write_text(markdown(table), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--markdown {markdown_file}: {error.strerror}") from None


@app.command()
def perf(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[search] CONFIG.toml | validate",
            help="A configuration; the best ones for it; how far off the model is.",
        ),
    ],
    tables: Annotated[
        Path | None, typer.Option(help="For validate: a folder with fit/ and check/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON value for scripts.")] = False,
) -> None:
    """Say how long a training step takes on given hardware, and why."""
    from nonuniform.perf import command
    from nonuniform.view.progress import counted

    if words == ["validate"]:
        if tables is None:
            raise BadInput("perf validate: --tables DIR is missing, the published tables")
        values, text = command.against(tables)
    elif tables is not None:
        raise BadInput(f"--tables {tables}: belongs to perf validate")
    elif len(words) == 2 and words[0] == "search":
        with counted("configurations") as progress:
            values, text = command.best(Path(words[1]), progress)
    elif len(words) == 1:
        values, text = command.one(Path(words[0]))
    else:
        raise BadInput(f"perf {' '.join(words)}: expected [search] CONFIG.toml, or validate")
    typer.echo(json.dumps(values) if as_json else text)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for both runs and the picture.")] = Path(
        "runs/demo"
    ),
    plain: Annotated[bool, typer.Option("--plain", help="Log lines, no live view.")] = False,
) -> None:
    """Lose GPUs while training a small model here, and compare."""
    _require_torch()
    from nonuniform.demo import run

    raise typer.Exit(run(out, plain=plain))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
) -> None:
    """Check whether this machine can run what is here."""
    from nonuniform.doctor.examine import examine
    from nonuniform.doctor.measure import current_folder
    from nonuniform.doctor.show import print_table, to_json
    from nonuniform.doctor.verdict import exit_status

    checks = examine(current_folder())
    if as_json:
        typer.echo(json.dumps(to_json(checks)))
    else:
        print_table(checks)
    raise typer.Exit(exit_status(checks))


def _require_torch() -> None:
    try:
        import nonuniform.train.run  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise BadInput("training needs torch: from a checkout, pip install '.[train]'") from None
