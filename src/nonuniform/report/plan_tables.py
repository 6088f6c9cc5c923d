"""The tables of the plan page.

In: a summary as a `Place`. Out: `Table`s, every cell of which is a figure, a name from a file, or
a word of `text/`. Works nothing out. Does not know what a page looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nonuniform.report.blocks import Table
from nonuniform.report.figures import Place
from nonuniform.report.phrases import Phrase
from nonuniform.report.plan_words import job_named, setting
from nonuniform.report.said import Joined, Said, Verbatim
from nonuniform.report.texts import Texts

HOURS = ("failed", "idled", "spare", "transition", "redone", "unused")
COSTS = ("lost", "spares", "energy", "operators", "total")
MARGINAL = ("live", "tokens", "ntp", "hidden_sync", "boost")


def heads(texts: Texts, currency: str, *names: str) -> tuple[Said, ...]:
    return tuple(texts(f"plan.table.{name}", currency=currency) for name in names)


def _table(
    place: Place, texts: Texts, caption: Said, columns: Sequence[str], words: int,
    rows: Sequence[tuple[Said, ...]], marked: frozenset[int] = frozenset(),
) -> Table:  # fmt: skip
    """The first `words` columns are words, the rest numbers."""
    numeric = tuple(index >= words for index in range(len(columns)))
    return Table(caption, heads(texts, place.currency, *columns), tuple(rows), numeric, marked)


def portfolio(summary: Place, texts: Texts) -> Table:
    columns = ("job", "candidate", "reason", "lost", "gpus", "degree", "failures")
    rows = [_job_row(summary, row, texts) for row in summary["portfolio"]]
    return _table(summary, texts, texts("plan.caption.portfolio"), columns, 3, rows)


def _job_row(summary: Place, row: Place, texts: Texts) -> tuple[Said, ...]:
    job = job_named(summary, row["job"].words())
    return (
        row["job"].name(),
        _yes_no(row["candidate"], texts),
        texts.known("reason", row["reason"].words()),
        row["lost"].figure().cell(),
        job["gpus"].figure("GPU").cell(),
        job["degree"].figure().cell(),
        job["failures_expected"].figure().as_count().cell(),
    )


def exposure(summary: Place, texts: Texts) -> Table:
    columns = ("job", "tp_usage", "blast", "failed_now", "failed_mean", "failed_p95")
    jobs = [job_named(summary, row["job"].words()) for row in summary["portfolio"]]
    rows = [
        (
            job["name"].name(),
            job["tp_usage"].figure().cell(),
            job["blast_gpus"].figure().cell(),
            *(job["failed_share"][key].figure().cell() for key in ("now", "mean", "p95")),
        )
        for job in jobs
    ]
    return _table(summary, texts, texts("plan.caption.exposure"), columns, 1, rows)


def measured(summary: Place, texts: Texts) -> Table:
    columns = ("job", "candidate", "reason", "gpu_hours", "failed_times", "failed_mean",
               "failed_p95", "measured_lost")  # fmt: skip
    rows = [
        (
            row["name"].name(),
            _yes_no(row["candidate"], texts),
            texts.known("reason", row["reason"].words()),
            row["gpu_hours"].figure().cell(),
            row["failures"].figure().as_count().cell(),
            *(row["failed_share"][key].figure().cell() for key in ("mean", "p95")),
            row["lost"].figure().cell(),
        )
        for row in summary.get("measured") or ()
    ]
    return _table(summary, texts, texts("plan.caption.measured"), columns, 3, rows)


def meaning(job: Place, chosen: str, texts: Texts) -> Table:
    columns = ("policy", "meaning", "runs", "needs")
    return _by_policy(
        job, chosen, texts, "meaning", columns, 4,
        lambda name, row: (
            Verbatim(name),
            _meaning(name, row["kind"].words(), texts),
            texts("plan.can_run" if row["runnable"].data else "plan.simulation_only"),
            _needs(row["needs"], texts),
        ),
    )  # fmt: skip


def _meaning(name: str, kind: str, texts: Texts) -> Said:
    return texts.known("policy", name if f"policy.{name}" in texts else kind)


def policies(job: Place, chosen: str, texts: Texts) -> Table:
    columns = ("policy", "throughput", "loss", "worst", "lost", "interrupted", "days", "completion")
    return _by_policy(
        job, chosen, texts, "policies", columns, 1,
        lambda name, row: (
            Verbatim(name),
            row["throughput"].figure().cell(),
            row["loss"].figure().cell(),
            row["throughput_worst"].figure().cell(),
            row["lost"].figure().cell(),
            row["interrupted"].figure().cell(),
            row["days"].figure().cell(),
            row["completion"].name() if row.get("completion") else texts("figure.none"),
        ),
    )  # fmt: skip


def hours(job: Place, chosen: str, texts: Texts) -> Table:
    columns = ("policy", *HOURS)
    return _by_policy(
        job, chosen, texts, "hours", columns, 1,
        lambda name, row: (
            Verbatim(name),
            *(row["gpu_hours"][part].figure("GPU-h/year").cell() for part in HOURS),
        ),
    )  # fmt: skip


def spares(job: Place, chosen: str, texts: Texts) -> Table:
    columns = ("policy", "spares", "spares_95", "spares_100")
    return _by_policy(
        job, chosen, texts, "spares", columns, 1,
        lambda name, row: (
            Verbatim(name),
            *(row["spares_domains"][p].figure("domains").cell() for p in ("p50", "p95", "p100")),
        ),
    )  # fmt: skip


def costs(job: Place, chosen: str, texts: Texts) -> Table:
    columns = ("policy", *(f"cost_{part}" for part in COSTS), "one_off", "net", "payback")
    return _by_policy(
        job, chosen, texts, "costs", columns, 1,
        lambda name, row: (
            Verbatim(name),
            *(row["cost"][part].figure().cell() for part in COSTS),
            row["one_off"].figure().cell(),
            row["net"].figure().cell(),
            row["payback_days"].figure().cell()
            if row.get("payback_days")
            else texts("plan.never" if name != job["today"].words() else "plan.current"),
        ),
    )  # fmt: skip


def _by_policy(
    job: Place, chosen: str, texts: Texts, caption: str, columns: Sequence[str], words: int,
    row_of: Callable[[str, Place], tuple[Said, ...]],
) -> Table:  # fmt: skip
    named = job["policies"].items()
    marked = frozenset(at for at, (name, _) in enumerate(named) if name == chosen)
    rows = [row_of(name, row) for name, row in named]
    title = texts(f"plan.caption.{caption}", job=job["name"].name(), currency=job.currency)
    return _table(job, texts, title, columns, words, rows, marked)


def _needs(place: Place, texts: Texts) -> Said:
    items = tuple(texts.known("needs", need.words()) for need in place)
    return Joined(items) if items else texts("plan.none")


def _yes_no(place: Place, texts: Texts) -> Said:
    return texts("plan.yes" if place.data else "plan.no")


def alternatives(summary: Place, texts: Texts) -> Table:
    rows = [
        (
            row["policy"].name(),
            texts.known("why_not", row["why_not"].words()),
            row["spare_domains"].figure("domains").cell(),
            row["throughput"].figure().cell(),
            row["net"].figure().cell(),
        )
        for row in summary["recommendation"]["alternatives"]
    ]
    columns = ("policy", "why_not", "spare_domains", "throughput", "net")
    return _table(summary, texts, texts("plan.caption.alternatives"), columns, 2, rows)


def changes(summary: Place, texts: Texts) -> Table:
    found = list(summary["recommendation"]["changes"])
    rows = [
        (
            texts.known("what_changes", row["what"].words()),
            setting(row, texts),
            row["policy"].name(),
            _yes_no(row["changed"], texts),
            row["net"].figure().cell(),
        )
        for row in found
    ]
    marked = frozenset(at for at, row in enumerate(found) if row["changed"].data)
    columns = ("what", "setting", "then", "changed", "net")
    return _table(summary, texts, texts("plan.caption.changes"), columns, 4, rows, marked)


def marginal(summary: Place, texts: Texts) -> Table:
    parts = [(part, summary["marginal"].get(part)) for part in MARGINAL]
    rows = [
        (texts(f"plan.marginal.{part}"), place.figure().cell())
        for part, place in parts
        if place is not None
    ]
    return _table(summary, texts, texts("plan.caption.marginal"), ("part", "gain"), 1, rows)


def path(summary: Place, texts: Texts) -> Table:
    rows = [
        (
            texts.known("step", row["step"].words()),
            _gate(row["gate"], texts),
            row["gpus"].figure().cell(),
            row["weeks"].figure().cell(),
            row["cost"].figure().cell(),
        )
        for row in summary["path"]
    ]
    columns = ("step", "gate", "gpus", "weeks", "cost")
    return _table(summary, texts, texts("plan.caption.path"), columns, 2, rows)


def _gate(gate: Place, texts: Texts) -> Said:
    side = "at_least" if gate.get("at_least") else "at_most"
    return texts(
        f"plan.gate.{side}",
        figure=texts.known("gate_figure", gate["figure"].words()),
        limit=gate[side].figure(),
    )


def prices(summary: Place, texts: Texts) -> Table:
    found = list(summary["money"]["prices"])
    rows = [
        (
            row["key"].name(code=True),
            Phrase(row["source"].words()),
            row["date"].name(),
            texts("plan.yes") if row["overridden"].data else texts("figure.none"),
            row["value"].figure(row["unit"].words().removeprefix("1")).bare(),
        )
        for row in found
    ]
    marked = frozenset(at for at, row in enumerate(found) if row["overridden"].data)
    caption = texts("plan.caption.prices", currency=summary["money"]["currency"].name())
    columns = ("price", "source", "date", "yours", "value")
    return _table(summary, texts, caption, columns, 4, rows, marked)


def facts(summary: Place, texts: Texts) -> Table:
    found = list(summary["facts"])
    rows = [
        (
            Phrase(row["about"].words()),
            Phrase(row["name"].words()),
            Phrase(row["text"].words()),
            texts("kind.assumed") if row["assumed"].data else texts("figure.none"),
            Phrase(row["note"].words()),
        )
        for row in found
    ]
    marked = frozenset(at for at, row in enumerate(found) if row["assumed"].data)
    columns = ("about", "name", "text", "assumed", "note")
    return _table(summary, texts, texts("plan.caption.facts"), columns, 5, rows, marked)


def inputs(summary: Place, texts: Texts) -> Table:
    rows = [
        (
            row["name"].name(),
            texts.known("input", row["what"].words()),
            _optional(row, "format", texts),
            _optional(row, "sha256", texts),
        )
        for row in summary["inputs"]
    ]
    columns = ("file", "name", "format", "sha")
    return _table(summary, texts, texts("plan.caption.inputs"), columns, 4, rows)


def _optional(row: Place, key: str, texts: Texts) -> Said:
    place = row.get(key)
    return texts("figure.none") if place is None else place.name(code=True)


def unknown(summary: Place, texts: Texts) -> Table | None:
    rows = [(row["file"].name(), row["what"].name(code=True)) for row in summary["unknown"]]
    if not rows:
        return None
    return _table(summary, texts, texts("plan.caption.unknown"), ("file", "flag"), 2, rows)
