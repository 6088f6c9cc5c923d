"""JOB.toml and the flags of `nonuniform train`, as frozen values.

In: a JOB file, values from the command line that replace some of its keys, and the scripted
failures. Out: `JobConfig` (every default filled in, so that nobody downstream guesses) and
`ScheduledEvent`s. The outside contract is in DESIGN "Outside contract".

Knows nothing of torch, of processes, or of how a tensor is cut: whether a degree is legal for the
model is asked of the layout, so that a job that cannot be cut is refused with its file's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from nonuniform.config_errors import describe
from nonuniform.errors import BadInput
from nonuniform.layout.model_plan import ModelShape, plan_llama
from nonuniform.toml_file import read_toml

BYTE_VALUES = 256

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
UpToOne = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0.5, le=1e6, allow_inf_nan=False)]
# A NUL ends a string wherever the system reads it.
SystemText = Annotated[str, Field(pattern=r"^[^\x00]*$")]

_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class ModelConfig:
    """`[model]`: a byte-level Llama. Zero stands for "derive it" and never survives construction,
    but for a head_dim that cannot be derived (see `_check_model`)."""

    __pydantic_config__ = _NO_OTHER_KEYS

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count = 0
    head_dim: Count = 0
    ffn: Count = 0
    vocab: Count = BYTE_VALUES
    tied: bool = True
    rope_base: Positive = 10000.0
    norm_eps: Positive = 1e-5

    def __post_init__(self) -> None:
        derived = {
            "kv_heads": self.heads,
            "head_dim": 0 if self.hidden % self.heads else self.hidden // self.heads,
            "ffn": -(-round(8 * self.hidden / 3) // 16) * 16,
        }
        for name, value in derived.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)

    def shape(self) -> ModelShape:
        """The integers that decide how the model is cut."""
        return ModelShape(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            vocab=self.vocab,
            tied=self.tied,
        )


@dataclass(frozen=True)
class DataConfig:
    """`[data]`: `text` holds globs, seen from `root`, which `load_job` makes absolute from the
    folder of the JOB file. Without globs the trainer takes text that every machine has."""

    __pydantic_config__ = _NO_OTHER_KEYS

    text: tuple[SystemText, ...] = ()
    root: Annotated[SystemText, Field(min_length=1)] = "."
    holdout: BelowOne = 0.05


@dataclass(frozen=True)
class ParallelConfig:
    """`[parallel]`: `degree` is the base degree; below `min_degree` a replica is dissolved.

    `spares` GPUs more wait for work; they are named "R/0", "R/1" with R = `replicas`. `borrow`: a
    GPU may work in another replica than its own, as where all share one scale-up domain."""

    __pydantic_config__ = _NO_OTHER_KEYS

    replicas: Count
    degree: Count
    min_degree: Count = 1
    allow_empty: bool = False
    spares: Whole = 0
    borrow: bool = True


@dataclass(frozen=True)
class BatchConfig:
    """`[batch]`: `sequences` is the global batch of a step, over all replicas."""

    __pydantic_config__ = _NO_OTHER_KEYS

    sequences: Count
    length: Count
    accumulation: Count = 1


@dataclass(frozen=True)
class OptimizerConfig:
    """`[optimizer]`: AdamW. `clip` = 0 is off, `clip_norm` is the p of the norm, `min_lr` a share
    of `lr`, `warmup` in steps."""

    __pydantic_config__ = _NO_OTHER_KEYS

    lr: Positive = 3e-3
    weight_decay: NonNegative = 0.1
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.95
    eps: Positive = 1e-8
    clip: NonNegative = 1.0
    clip_norm: float = 2.0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Whole = 10
    min_lr: UpToOne = 0.1


@dataclass(frozen=True)
class RunConfig:
    """`[run]`: how long, how exact, and how the run defends itself. `val_every` = 0 is never.
    `bucket_mb` is in MiB (2**20 bytes): how much of the gradients travels together. A process that
    shows no progress for `hang_timeout_s` (at its start: `start_timeout_s`) is treated as dead."""

    __pydantic_config__ = _NO_OTHER_KEYS

    steps: Count
    seed: Whole = 1
    dtype: Literal["float32", "float64"] = "float32"
    val_every: Whole = 0
    val_sequences: Count = 0
    log_sample_ids: bool = False
    check_units: bool = False
    bucket_mb: Positive = 4.0
    address: Annotated[SystemText, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    hang_timeout_s: Seconds = 120.0
    start_timeout_s: Seconds = 120.0
    nonfinite: Literal["skip", "stop"] = "skip"
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class CheckpointConfig:
    """`[checkpoint]`: one after every `every` steps (0: none on the way), the newest `keep` of them
    stay, in `folder` (seen from OUT). `final`: one more when the run ends, however it ends."""

    __pydantic_config__ = _NO_OTHER_KEYS

    every: Whole = 0
    keep: Count = 2
    folder: Annotated[SystemText, Field(min_length=1)] = "checkpoints"
    final: bool = True

    def due(self, step: int, steps: int) -> bool:
        """Whether one is written beside the training after `step`; the last step's is `final`."""
        return self.every > 0 and step % self.every == 0 and (step < steps or not self.final)


@dataclass(frozen=True)
class HealthConfig:
    """`[health]`: GPUs that are slow or fail again and again.

    A rank that needs `slow_factor` times as long for its work as the others, over `slow_steps`
    steps, is `slow_action`. A GPU that fails more than `flaps` times within `flap_window_s` is kept
    out for `quarantine_s`, and twice as long each time after, up to `quarantine_max_s` (0: never).
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    slow_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2.0
    slow_steps: Count = 16
    slow_action: Literal["ignore", "report", "drain"] = "report"
    flaps: Whole = 2
    flap_window_s: Positive = 3600.0
    quarantine_s: NonNegative = 60.0
    quarantine_max_s: NonNegative = 3600.0


@dataclass(frozen=True)
class JobConfig:
    """One training job. Construct it by `load_job`, or in tests from its sections."""

    __pydantic_config__ = _NO_OTHER_KEYS

    model: ModelConfig
    parallel: ParallelConfig
    batch: BatchConfig
    run: RunConfig
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    health: HealthConfig = field(default_factory=HealthConfig)

    def __post_init__(self) -> None:
        if self.run.val_sequences == 0:
            run = replace(self.run, val_sequences=self.batch.sequences)
            object.__setattr__(self, "run", run)


_JOB = TypeAdapter(JobConfig)


def load_job(path: Path, overrides: Mapping[str, object] | None = None) -> JobConfig:
    """Read and check a JOB file. `overrides` replaces keys: {"run.steps": 20}."""
    values = read_toml(path)
    overrides = overrides or {}
    for key, value in overrides.items():
        _replace_key(values, key, value)
    try:
        # Through JSON, since only there does pydantic's strict mode build dataclasses from tables;
        # strict refuses 4.0 and "4" where an integer is meant.
        job = _JOB.validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        raise BadInput(describe(str(path), error, JobConfig, overrides)) from None
    problems = [*_check_model(job), *_check_parallel(job), *_check_optimizer(job)]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadInput(f"{path}: {problems[0]}{more}")
    _check_degrees(job, path)
    return replace(job, data=replace(job.data, root=_absolute(path, job.data.root)))


def _absolute(path: Path, root: str) -> str:
    try:
        return str((path.parent / root).resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long
        reason = str(error).replace("\n", " ")
        raise BadInput(f"{path}: [data] root: cannot be followed: {reason}") from None


def _replace_key(values: dict[str, Any], dotted: str, value: object) -> None:
    section, _, key = dotted.partition(".")
    table = values.setdefault(section, {})
    if isinstance(table, dict):  # otherwise the validation says what is wrong with it
        table[key] = value


def _check_model(job: JobConfig) -> list[str]:
    model = job.model
    problems = []
    if model.head_dim == 0:
        problems.append(
            f"[model] heads: must divide hidden where head_dim is not given, "
            f"got heads = {model.heads}, hidden = {model.hidden}"
        )
    elif model.head_dim % 2:
        problems.append(
            f"[model] head_dim: must be even (rotary embedding turns pairs), got {model.head_dim} "
            f"with hidden = {model.hidden}, heads = {model.heads}"
        )
    if model.kv_heads > model.heads:
        problems.append(
            f"[model] kv_heads: must be at most heads = {model.heads}, got {model.kv_heads}"
        )
    if model.vocab < BYTE_VALUES:
        problems.append(
            f"[model] vocab: must be at least {BYTE_VALUES} (tokens are bytes), got {model.vocab}"
        )
    return problems


def _check_parallel(job: JobConfig) -> list[str]:
    parallel, batch = job.parallel, job.batch
    problems = []
    if batch.sequences < parallel.replicas:
        problems.append(
            f"[batch] sequences: must be at least one per replica, "
            f"got sequences = {batch.sequences} for replicas = {parallel.replicas}"
        )
    elif batch.accumulation * parallel.replicas > batch.sequences:
        problems.append(
            f"[batch] accumulation: must leave each micro-batch of each replica a sequence, got "
            f"accumulation = {batch.accumulation} x replicas = {parallel.replicas} "
            f"> sequences = {batch.sequences}"
        )
    return problems


def _check_optimizer(job: JobConfig) -> list[str]:
    if job.optimizer.clip_norm in (1.0, 2.0, float("inf")):
        return []
    return [f"[optimizer] clip_norm: must be 1, 2 or inf, got {job.optimizer.clip_norm:g}"]


def _check_degrees(job: JobConfig, path: Path) -> None:
    parallel = job.parallel
    try:
        plan_llama(job.model.shape(), parallel.degree, parallel.min_degree, parallel.allow_empty)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


@dataclass(frozen=True)
class ScheduledEvent:
    """A scripted failure, drain or return of one GPU; `gpu` is "R/I". The words are those of the
    health events that it becomes."""

    kind: Literal["failed", "returned", "drained"]
    gpu: str
    step: int


_EVENT = re.compile(r"gpu=([0-9]+)/([0-9]+)@step=([0-9]+)")


def parse_schedule(
    fails: Sequence[str], returns: Sequence[str], job: JobConfig, drains: Sequence[str] = ()
) -> tuple[ScheduledEvent, ...]:
    """The events of `--fail`, `--drain` and `--return`, by step; a GPU goes and returns in turn."""
    events = [_parse_event("failed", "--fail", text, job) for text in fails]
    events += [_parse_event("drained", "--drain", text, job) for text in drains]
    events += [_parse_event("returned", "--return", text, job) for text in returns]
    events.sort(key=lambda event: (event.step, event.kind, _gpu_key(event.gpu)))
    last: dict[str, ScheduledEvent] = {}
    for event in events:
        _check_turn(event, last.get(event.gpu))
        last[event.gpu] = event
    return tuple(events)


def _parse_event(
    kind: Literal["failed", "returned", "drained"], flag: str, text: str, job: JobConfig
) -> ScheduledEvent:
    match = _EVENT.fullmatch(text)
    if match is None:
        raise BadInput(f"{flag} {text}: must be gpu=R/I@step=S, such as gpu=0/3@step=20")
    replica, index, step = map(int, match.groups())
    parallel = job.parallel
    spare = replica == parallel.replicas and index < parallel.spares
    if not spare and (replica >= parallel.replicas or index >= parallel.degree):
        spares = f" and the spares {parallel.replicas}/0 to {parallel.replicas}/"
        raise BadInput(
            f"{flag} {text}: there is no GPU {replica}/{index}, "
            f"the job has 0/0 to {parallel.replicas - 1}/{parallel.degree - 1}"
            + (f"{spares}{parallel.spares - 1}" if parallel.spares else "")
        )
    if not 1 <= step <= job.run.steps:
        raise BadInput(f"{flag} {text}: step must be in 1 to {job.run.steps}, got {step}")
    return ScheduledEvent(kind, f"{replica}/{index}", step)


def _gpu_key(gpu: str) -> tuple[int, ...]:
    return tuple(map(int, gpu.split("/")))


def _check_turn(event: ScheduledEvent, before: ScheduledEvent | None) -> None:
    where = f"gpu={event.gpu}@step={event.step}"
    if event.kind != "returned":
        flag = "--fail" if event.kind == "failed" else "--drain"
        if before is not None and before.kind != "returned":
            raise BadInput(
                f"{flag} {where}: GPU {event.gpu} has already {before.kind} at step {before.step}"
            )
    elif before is None or before.kind == "returned":
        since = f" since it returned at step {before.step}" if before else ""
        raise BadInput(
            f"--return {where}: GPU {event.gpu} has not failed before step {event.step}{since}"
        )
    elif before.step == event.step:
        raise BadInput(f"--return {where}: must come later than its failure at step {before.step}")
