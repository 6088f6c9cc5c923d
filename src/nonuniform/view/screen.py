"""The picture of a running job: state -> renderable.

In: a `RunState`, the seconds since the run's start, and a `Look` (how much room there is). Out: a
rich renderable. Pure: the same state draws the same picture.
Shapes carry the meaning, colours only repeat it: a lost GPU is a hollow square on every terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nonuniform.view import words
from nonuniform.view.sparkline import resample, sparkline
from nonuniform.view.state import RunState, Story, tokens_per_s

EVENTS = 6
LABEL = 9  # width of the words at the left of the curve and the bar


@dataclass(frozen=True)
class Look:
    """The room there is, in characters; `ascii_only` for terminals that know nothing else."""

    width: int = 80
    height: int = 24
    ascii_only: bool = False

    @property
    def rows_of_curve(self) -> int:
        return 3 if self.height >= 20 and not self.ascii_only else 1

    def glyph(self, kind: str) -> str:
        return _GLYPHS[kind][1 if self.ascii_only else 0]


_GLYPHS = {
    "working": ("■", "#"),
    "lost": ("□", "_"),
    "warming": ("◇", "~"),
    "idle": ("▪", "-"),
    "failed": ("▼", "x"),
    "joined": ("▲", "^"),
}
_STYLES = {
    "working": "cyan",
    "lost": "bold magenta",
    "warming": "yellow",
    "idle": "dim",
    "failed": "bold magenta",
    "joined": "bold yellow",
}


def screen(state: RunState, now_s: float, look: Look | None = None) -> RenderableType:
    """The whole view, at most `look.height` lines high where that is possible."""
    look = look or Look()
    top = [_headline(state, look), _progress(state), *_curve(state, look), _figures(state, now_s)]
    shown, hidden = _shown_replicas(state, look)
    middle: list[RenderableType] = [replica_rows(state, shown, look)]
    if hidden:
        middle.append(Text(f"{'':10}and {hidden} more replicas", style="dim", no_wrap=True))
    room = look.height - len(top) - len(shown) - len(middle) - 3
    return Group(*top, Text(""), *middle, Text(""), _events(state, look, max(2, room)))


def _headline(state: RunState, look: Look) -> Text:
    job = state.job
    parts = [
        f"{job.replicas} replicas at degree {job.degree} (at least {job.min_degree})",
        words.parameter_count(job.parameters) if job.parameters else "",
        f"generation {state.generation}",
    ]
    line = Text("nonuniform  ", style="bold", no_wrap=True, overflow="ellipsis")
    line.append(", ".join(part for part in parts if part), style="not bold")
    line.truncate(look.width)
    return line


def _progress(state: RunState) -> Table:
    """As wide as the curve below it, so that both have one axis: the steps of the job."""
    total = max(1, state.job.steps)
    line = Table.grid(padding=(0, 1, 0, 0), expand=True)
    line.add_column(width=LABEL - 1, no_wrap=True)
    line.add_column(ratio=1)
    bar = ProgressBar(
        total=total,
        completed=min(state.step, total),
        complete_style="cyan",
        finished_style="cyan",
    )
    line.add_row(Text(f"{state.step}/{state.job.steps}"), bar)
    return line


def _clock(state: RunState, now_s: float) -> str:
    if state.summary is not None:
        return f"{'stopped' if state.stopped else 'ended'} at {words.clock(now_s)}"
    if state.recovering:
        since = min(s.time_s for s in state.stories if s.waiting)
        return f"{words.clock(now_s)}, regrouping for {max(0.0, now_s - since):.1f} s"
    per_step_s = _seconds_per_step(state)
    left = f", about {words.clock(per_step_s * (state.job.steps - state.step))} left"
    return words.clock(now_s) + (left if per_step_s and state.step < state.job.steps else "")


def _seconds_per_step(state: RunState) -> float:
    if len(state.recent) < 2:
        return 0.0
    return (state.recent[-1].time_s - state.recent[0].time_s) / (len(state.recent) - 1)


def _curve(state: RunState, look: Look) -> list[RenderableType]:
    """The loss over all steps of the job, and below it where GPUs were lost or joined."""
    columns = max(10, look.width - LABEL - 1)
    lines = sparkline(resample(state.losses(), columns), look.rows_of_curve, look.ascii_only)
    labels = _loss_labels(state, len(lines))
    drawn: list[RenderableType] = []
    for label, line in zip(labels, lines, strict=True):
        text = Text(label.ljust(LABEL), no_wrap=True)
        drawn.append(text.append(line, style="cyan"))
    return [*drawn, _marks(state, columns, look)]


def _loss_labels(state: RunState, rows: int) -> list[str]:
    known = [value for value in state.losses() if value is not None]
    if rows == 1 or not known:
        return ["loss"] + [""] * (rows - 1)
    return [f"{max(known):.3f}"] + [""] * (rows - 2) + [f"{min(known):.3f}"]


def _marks(state: RunState, columns: int, look: Look) -> Text:
    line = Text("GPUs".ljust(LABEL), no_wrap=True)
    at: dict[int, str] = {}
    for step, kind in state.marks:
        column = (max(1, step) - 1) * columns // max(1, state.job.steps)
        at[min(columns - 1, column)] = kind
    for column in range(columns):
        kind = at.get(column, "")
        line.append(look.glyph(kind) if kind else " ", style=_STYLES.get(kind, ""))
    return line


def _figures(state: RunState, now_s: float) -> Table:
    text = Text("loss".ljust(LABEL), no_wrap=True, overflow="ellipsis")
    text.append(f"{state.loss:.4f}" if state.step else "-", "bold")
    if state.validation is not None:
        text.append(f"   validation {state.validation[1]:.4f} (step {state.validation[0]})")
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(ratio=1, no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    urgent = state.recovering and state.summary is None
    line.add_row(text, Text(_clock(state, now_s), style="bold magenta" if urgent else ""))
    return line


def replica_rows(state: RunState, shown: list[int], look: Look) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=False, header_style="dim")
    columns: tuple[tuple[str, Literal["left", "right"]], ...] = (
        ("replica", "right"), ("GPUs", "left"), ("degree", "left"), ("sequences", "left"),
        ("tokens/s", "right"), ("", "left"),
    )  # fmt: skip
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    speeds = tokens_per_s(state)
    whole = sum(state.batch_shares)
    for replica in shown:
        degree = state.degree_now(replica)
        works = degree > 0 and replica < len(state.batch_shares)
        table.add_row(
            str(replica),
            _blocks(state, replica, look),
            f"{degree} of {state.job.degree}",
            f"{state.batch_shares[replica]} of {whole}" if works else "-",
            f"{speeds[replica]:,.0f}" if works and replica < len(speeds) else "-",
            Text(_condition(state, replica, degree), style="dim"),
        )
    return table


def _shown_replicas(state: RunState, look: Look) -> tuple[list[int], int]:
    """All, or where there are too many the hurt ones first; and how many are left out."""
    room = max(2, look.height // 3)
    everyone = list(range(state.job.replicas))
    if len(everyone) <= room:
        return everyone, 0
    hurt_first = sorted(everyone, key=lambda r: (state.degree_now(r) >= state.job.degree, r))
    return sorted(hurt_first[: room - 1]), len(everyone) - room + 1


def _blocks(state: RunState, replica: int, look: Look) -> Text:
    """One square per GPU in the order of their index; a bar with counts where they do not fit."""
    kinds = _gpu_kinds(state, replica)
    room = max(4, look.width - 66)
    text = Text(no_wrap=True)
    if len(kinds) > room:
        lost = sum(kind in ("lost", "warming") for kind in kinds)
        hollow = max(1, round(lost * room / len(kinds))) if lost else 0
        rest = "working" if state.degree_now(replica) else "idle"
        text.append(look.glyph(rest) * (room - hollow), _STYLES[rest])
        return text.append(look.glyph("lost") * hollow, _STYLES["lost"])
    for kind in kinds:
        text.append(look.glyph(kind), _STYLES[kind])
    return text


def _gpu_kinds(state: RunState, replica: int) -> list[str]:
    left = state.degree_now(replica)
    kinds = []
    for gpu in state.gpus_of(replica):
        if gpu in state.down or gpu in state.warming:
            kinds.append("lost" if gpu in state.down else "warming")
            continue
        kinds.append("working" if left > 0 else "idle")
        left -= 1
    return kinds


def _condition(state: RunState, replica: int, degree: int) -> str:
    gpus = set(state.gpus_of(replica))
    if degree == 0:
        spares = state.working(replica)
        return "dissolved" + (f", {spares} spare{'s' * (spares > 1)}" if spares else "")
    if gpus & state.warming:
        return f"{len(gpus & state.warming)} warming up"
    if gpus & state.down:
        return f"{len(gpus & state.down)} lost"
    return ""


def _events(state: RunState, look: Look, lines: int) -> RenderableType:
    """The latest stories that fit, oldest first."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    chosen = _latest(state.stories, max(20, look.width - 10), lines)
    if not chosen:
        table.add_row(Text("", style="dim"), Text("nothing has happened yet", style="dim"))
    for story in chosen:
        style = "bold magenta" if story.waiting else "default"
        table.add_row(Text(words.clock(story.time_s), style="dim"), Text(story.text, style=style))
    return table


def _latest(stories: tuple[Story, ...], columns: int, lines: int) -> list[Story]:
    chosen: list[Story] = []
    for story in reversed(stories):
        lines -= 1 + len(story.text) // columns
        if len(chosen) == EVENTS or (lines < 0 and chosen):
            break
        chosen.insert(0, story)
    return chosen
