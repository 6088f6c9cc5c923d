"""What a viewer needs to know of a run, kept up to date by pure functions.

In: the dicts of `RunObserver`. Out: a `RunState`, which the live view draws and the log lines read.
Every function here is (state, record) -> state. A failure and the recovery that answers it become
one `Story`, so that a reader sees one sentence per incident and not four log lines.
Does not know: clocks, terminals, widths. Its size does not grow with the length of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nonuniform.view import words

CURVE_BINS = 256
RECENT_STEPS = 12
# Told by other records, or once per GPU.
QUIET = ("started", "generation", "saving", "resumed", "finished", "ended")
_OPEN = "; the others regroup ..."
STORIES = 32
MARKS = 256


@dataclass(frozen=True)
class Job:
    """What `on_start` told."""

    replicas: int = 0
    degree: int = 0
    min_degree: int = 1
    steps: int = 0
    parameters: int = 0
    gpus: tuple[str, ...] = ()
    out: str = ""


@dataclass(frozen=True)
class Story:
    """One incident in words. `waiting`: the run has not yet gone on since."""

    time_s: float
    step: int
    text: str
    gpus: tuple[str, ...] = ()
    reason: str = ""
    waiting: bool = False


@dataclass(frozen=True)
class Commit:
    """One committed step, as far as a speed needs it."""

    time_s: float
    tokens: int
    batch_shares: tuple[int, ...]


@dataclass(frozen=True)
class RunState:
    """`curve[b]` is (sum, count) of the losses of the steps in bin b; `marks` are (step, kind);
    `degrees` and `batch_shares` are by replica, 0 for one that is dissolved; `at`: gpu -> replica
    in which it works, where that is not the one of its name."""

    job: Job = field(default_factory=Job)
    step: int = 0
    loss: float = math.nan
    grad_norm: float = math.nan
    time_s: float = 0.0
    generation: int = 0
    samples: int = 0
    tokens: int = 0
    degrees: tuple[int, ...] = ()
    batch_shares: tuple[int, ...] = ()
    at: Mapping[str, int] = field(default_factory=dict)
    down: frozenset[str] = frozenset()
    warming: frozenset[str] = frozenset()
    validation: tuple[int, float] | None = None
    curve: tuple[tuple[float, int], ...] = ()
    recent: tuple[Commit, ...] = ()
    stories: tuple[Story, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()
    summary: Mapping[str, Any] | None = None

    @property
    def recovering(self) -> bool:
        return any(story.waiting for story in self.stories)

    @property
    def stopped(self) -> bool:
        """The run ended before its work was done."""
        return self.summary is not None and self.summary.get("status") == "failed"

    def gpus_of(self, replica: int) -> tuple[str, ...]:
        """Those that work there, and those of its name that work nowhere."""
        return tuple(g for g in self.job.gpus if self.at.get(g, replica_of(g)) == replica)

    def working(self, replica: int) -> int:
        """GPUs of this replica that are neither lost nor still warming up."""
        return sum(gpu not in self.down | self.warming for gpu in self.gpus_of(replica))

    def degree_now(self, replica: int) -> int:
        """Of the last committed step; while a failure is open, already without the lost GPUs."""
        known = self.degrees[replica] if replica < len(self.degrees) else self.job.degree
        alive = self.working(replica)
        if not self.recovering or known <= alive:
            return known
        return alive if alive >= self.job.min_degree else 0

    def losses(self) -> tuple[float | None, ...]:
        return tuple(total / count if count else None for total, count in self.curve)


def replica_of(gpu: str) -> int:
    return int(gpu.partition("/")[0])


def after_start(state: RunState, info: Mapping[str, Any]) -> RunState:
    replicas, degree = int(info.get("replicas", 0)), int(info.get("degree", 0))
    gpus = info.get("gpus") or [f"{r}/{i}" for r in range(replicas) for i in range(degree)]
    steps = int(info.get("steps", 0))
    job = Job(
        replicas=replicas,
        degree=degree,
        min_degree=int(info.get("min_degree", 1)),
        steps=steps,
        parameters=int(info.get("parameters", 0)),
        gpus=tuple(gpus),
        out=str(info.get("out", "")),
    )
    bins = ((0.0, 0),) * min(CURVE_BINS, max(1, steps))
    return replace(state, job=job, degrees=(degree,) * replicas, curve=bins)


def after_step(state: RunState, record: Mapping[str, Any]) -> RunState:
    step, time_s = int(record["step"]), float(record.get("time_s", state.time_s))
    loss = _number(record.get("loss"))
    tokens = int(record.get("tokens", 0))
    shares = _whole_numbers(record.get("batch_shares", state.batch_shares))
    commit = Commit(time_s, tokens, shares)
    return replace(
        state,
        step=step,
        loss=loss,
        grad_norm=_number(record.get("grad_norm")),
        time_s=time_s,
        generation=int(record.get("generation") or state.generation),
        samples=state.samples + int(record.get("samples", 0)),
        tokens=state.tokens + tokens,
        degrees=_whole_numbers(record.get("degrees", state.degrees)),
        batch_shares=shares,
        curve=_with_loss(state, step, loss),
        recent=(*state.recent, commit)[-RECENT_STEPS:],
        stories=tuple(_closed(story, step) for story in state.stories),
    )


def _closed(story: Story, step: int) -> Story:
    """The run went on without a recovery, so what was lost took no part in the work. The step of a
    loss may still be committed before the recovery, and the next one just before its event."""
    if not story.waiting or step <= story.step + 1:
        return story
    return replace(story, text=story.text.removesuffix(_OPEN), waiting=False)


def after_end(state: RunState, summary: Mapping[str, Any]) -> RunState:
    state = replace(state, summary=dict(summary))
    if not state.stopped:
        return state
    record = {"time_s": summary.get("time_s") or state.time_s}
    reason = str(summary.get("reason") or "no reason was given")
    return _told(state, _story(state, record, f"stopped after step {state.step}: {reason}"))


def after_event(state: RunState, record: Mapping[str, Any]) -> RunState:
    kind = str(record.get("kind", "event"))
    if kind == "failed":
        return _failed(state, record)
    if kind == "returned":
        return _returned(state, record)
    if kind == "joined":
        return _joined(state, record)
    if kind == "recovery":
        return _recovered(state, record)
    if kind == "validation":
        checked = (_step(state, record), _number(record.get("loss")))
        return replace(state, validation=checked)
    if kind == "drained":
        state = replace(state, down=state.down | set(_gpus(record)))
    if kind == "fallback":
        state = replace(state, step=_step(state, record))
    if kind == "generation":
        state = replace(state, at=_at(record))
    if kind in QUIET:
        return replace(state, generation=int(record.get("generation") or state.generation))
    return _told(state, _story(state, record, words.other_event(record)))


def _at(record: Mapping[str, Any]) -> dict[str, int]:
    """Of the GPUs that work elsewhere than where they are named for."""
    placed = {
        str(gpu): int(replica)
        for replica, gpus in (record.get("placement") or {}).items()
        for gpu in gpus
    }
    return {gpu: replica for gpu, replica in placed.items() if replica != replica_of(gpu)}


def tokens_per_s(state: RunState) -> tuple[float, ...]:
    """Per replica over the recent steps, pauses included: what the run really got through."""
    if len(state.recent) < 2:
        return ()
    span_s = state.recent[-1].time_s - state.recent[0].time_s
    if span_s <= 0:
        return ()
    done = [0.0] * state.job.replicas
    for commit in state.recent[1:]:
        whole = sum(commit.batch_shares)
        for replica, share in enumerate(commit.batch_shares[: state.job.replicas]):
            done[replica] += commit.tokens * share / whole if whole else 0.0
    return tuple(tokens / span_s for tokens in done)


def _failed(state: RunState, record: Mapping[str, Any]) -> RunState:
    gpus = _gpus(record)
    step, reason = _step(state, record), str(record.get("reason") or "")
    lost = f"{words.gpu_names(gpus)} {words.loss_verb(reason, len(gpus))} at step {step}"
    lost += f" ({reason})" if reason else ""
    worked = not gpus or any(_worked(state, gpu) for gpu in gpus)
    text = lost + (_OPEN if worked else ", it was not at work")
    story = _story(state, record, text, waiting=worked)
    state = replace(
        state,
        down=state.down | set(gpus),
        warming=state.warming - set(gpus),
        marks=(*state.marks, (step, "failed"))[-MARKS:],
    )
    return _told(state, story)


def _worked(state: RunState, gpu: str) -> bool:
    """Not those that warm up, and not the spares of a replica that is dissolved."""
    replica = replica_of(gpu)
    dissolved = replica < len(state.degrees) and state.degrees[replica] == 0
    return gpu not in state.warming and not dissolved


def _returned(state: RunState, record: Mapping[str, Any]) -> RunState:
    gpus = _gpus(record)
    step = _step(state, record)
    text = f"{words.gpu_names(gpus)} came back at step {step} and warms up beside the run"
    state = replace(state, down=state.down - set(gpus), warming=state.warming | set(gpus))
    return _told(state, _story(state, record, text))


def _joined(state: RunState, record: Mapping[str, Any]) -> RunState:
    gpus = _gpus(record)
    step = _step(state, record)
    state = replace(
        state,
        down=state.down - set(gpus),
        warming=state.warming - set(gpus),
        marks=(*state.marks, (step, "joined"))[-MARKS:],
    )
    what = f"{words.gpu_names(gpus)} joined at step {step}"
    after = _after(state, gpus, words.replica_after_join)
    return _told(state, _story(state, record, words.with_timings(f"{what}: {after}", record)))


def _recovered(state: RunState, record: Mapping[str, Any]) -> RunState:
    """The open failures get their ending, as one story."""
    mine = [story for story in state.stories if story.waiting]
    if not mine:
        what = f"the run regrouped at step {_step(state, record)}"
        return _told(state, _story(state, record, words.with_timings(what, record)))
    gpus = tuple(gpu for story in mine for gpu in story.gpus)
    step = min(story.step for story in mine)
    what = f"{words.gpu_names(gpus)} {words.loss_verb(mine[0].reason, len(gpus))} at step {step}"
    text = f"{what}: {_after(state, gpus, words.replica_after_loss)}"
    merged = replace(
        mine[-1], gpus=gpus, step=step, text=words.with_timings(text, record), waiting=False
    )
    kept = tuple(story for story in state.stories if story not in mine)
    return replace(state, stories=(*kept, merged)[-STORIES:])


def _after(state: RunState, gpus: Sequence[str], say: Callable[[int, int, int, int], str]) -> str:
    """What the replicas of these GPUs became."""
    job = state.job
    replicas = sorted({replica_of(gpu) for gpu in gpus})
    parts = [say(r, state.working(r), job.degree, job.min_degree) for r in replicas]
    return ", ".join(parts) if parts else "the run goes on"


def _story(state: RunState, record: Mapping[str, Any], text: str, waiting: bool = False) -> Story:
    return Story(
        time_s=float(record.get("time_s", state.time_s)),
        step=_step(state, record),
        text=text,
        gpus=_gpus(record),
        reason=str(record.get("reason") or ""),
        waiting=waiting,
    )


def _step(state: RunState, record: Mapping[str, Any]) -> int:
    """Of the event; one that names no step happened after the last commit."""
    step = record.get("step")
    return state.step if step is None else int(step)


def _told(state: RunState, story: Story) -> RunState:
    return replace(state, stories=(*state.stories, story)[-STORIES:])


def _gpus(record: Mapping[str, Any]) -> tuple[str, ...]:
    gpu = record.get("gpu")
    return (str(gpu),) if gpu else ()


def _with_loss(state: RunState, step: int, loss: float) -> tuple[tuple[float, int], ...]:
    if not state.curve or not math.isfinite(loss):
        return state.curve
    count = len(state.curve)
    chosen = min(count - 1, max(0, (step - 1) * count // max(1, state.job.steps)))
    total, seen = state.curve[chosen]
    return (*state.curve[:chosen], (total + loss, seen + 1), *state.curve[chosen + 1 :])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
