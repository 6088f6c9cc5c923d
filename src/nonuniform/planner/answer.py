"""The answer as Markdown for a mail: the same figures, in words.

In: the summary. Out: text. DESIGN "Outside contract". Works nothing out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

REASONS = {
    "saves": "it saves more than it costs",
    "tensor-parallel-1": "the job has no tensor parallelism, so no replica can run on fewer GPUs",
    "few-failures": "less than one failure is expected while it runs",
    "short-job": "it is over within a day",
    "preemptible": "others may take its GPUs at any time, which costs more than failures do",
    "costs-more": "nothing more is gained than it costs",
    "within-noise": "what it gains is less than can be told apart",
    "no-domain-loss": "failures take no replica's speed here: a domain has GPUs to spare inside",
}
WORTH = {"yes": "Yes", "no": "No", "unclear": "Not clearly"}


def answer_text(summary: Json) -> str:
    verdict, advice = summary["verdict"], summary["recommendation"]
    currency = summary["money"]["currency"]
    lines = [
        "# Is nonuniform tensor parallelism worth it?",
        "",
        f"**{WORTH[verdict['worth']]}** for {_code(advice['job'])}: {REASONS[verdict['reason']]}.",
        _advice(summary, currency),
    ]
    if summary["example"]:
        lines += ["", "The failure log is an example: made by the simulator from published rates."]
    lines += ["", *_table(summary, currency), "", *_changes(advice, currency)]
    lines += ["", f"Made by `{summary['command']}` on {summary['created']}, {summary['seeds']} "
              "simulated histories, 95 % intervals in brackets."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _advice(summary: Json, currency: str) -> str:
    advice = summary["recommendation"]
    if not summary["verdict"]["change"]:
        return "Recommended: stay with what you do today."
    only = "" if advice["runnable"] else " (simulated only: `nonuniform train` cannot run it yet)"
    return (
        f"Recommended: `{advice['policy']}`{only} with {number(advice['spare_domains'])} spare "
        f"domains. It saves {number(advice['saved'])} GPU-hours and {number(advice['net'])} "
        f"{currency} a year against today."
    )


def _table(summary: Json, currency: str) -> list[str]:
    job = next(j for j in summary["jobs"] if j["name"] == summary["recommendation"]["job"])
    rows = [
        f"| policy | throughput | GPU-hours lost a year | net {currency} a year | spares | |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in job["policies"].items():
        told = "" if own["runnable"] else "simulation only"
        rows.append(
            f"| {name} | {percent(own['throughput'])} | {number(own['lost'])} | "
            f"{number(own['net'])} | {own['spare_domains']} | {told} |"
        )
    return rows


def _changes(advice: Json, currency: str) -> list[str]:
    if not advice["changes"]:
        return []
    rows = [f"| if | then | net {currency} a year |", "|---|---|---|"]
    for row in advice["changes"]:
        mark = "**" if row["changed"] else ""
        rows.append(
            f"| {row['what']} {row['setting']} | {mark}{row['policy']}{mark} | "
            f"{number(row['net'])} |"
        )
    return rows


def number(figure: Json) -> str:
    return _with_interval(figure, lambda v: f"{v:,.0f}")


def percent(figure: Json) -> str:
    return _with_interval(figure, lambda v: f"{100 * v:.2f} %")


def _with_interval(figure: Json, words: Any) -> str:
    if figure["value"] is None:
        return "-"
    shown = str(words(figure["value"]))
    low, high = figure["low"], figure["high"]
    if low is None or high is None or words(low) == words(high):
        return shown
    return f"{shown} [{words(low)}, {words(high)}]"


def _code(name: str) -> str:
    """A name from a file, as it is; nothing in it is markup."""
    quiet = "".join(c if c.isprintable() and c != "`" else " " for c in name)
    return f"`{quiet}`"
