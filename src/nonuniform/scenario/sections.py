"""SCENARIO.toml as frozen values, one class per section, with every default.

In: nothing. Out: the classes that `read` fills. None stands for "not given", where another key or
another section then decides. DESIGN "Outside contract". What a key means is in `docs/simulate.md`.
Knows nothing of how a scenario is run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from nonuniform.cluster.sources.log_format import (
    Clock,
    Columns,
    Expand,
    FileKind,
    Nodes,
    Orphans,
    Window,
)
from nonuniform.cluster.sources.rates import Blast
from nonuniform.placement.policy import Batch, Grain, Kind, OnFailure, Packing, Repack

Count = Annotated[int, Field(ge=1, le=2**31)]
Whole = Annotated[int, Field(ge=0, le=2**31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]

_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class ClusterSection:
    """`[cluster]`: what is owned. GPUs that fill no domain are not used."""

    __pydantic_config__ = _NO_OTHER_KEYS

    gpus: Count
    domain: Count
    node: Count = 8


@dataclass(frozen=True)
class JobSection:
    """`[job]`: how the training job lies on the domains. `degree` not given: a whole domain;
    `replicas` = 0: as many as fit."""

    __pydantic_config__ = _NO_OTHER_KEYS

    sequences_per_replica: Count
    degree: Count | None = None
    stages: Count = 1
    replicas: Whole = 0
    layers: Whole = 0
    microbatch_sequences: Count = 1
    sequence_tokens: Whole = 0


@dataclass(frozen=True)
class RepairSection:
    """How long a repair takes, in hours; which keys belong to which kind is checked by `build`."""

    __pydantic_config__ = _NO_OTHER_KEYS

    kind: Literal["fixed", "lognormal", "weibull", "empirical"]
    hours: Positive | None = None
    median_h: Positive | None = None
    mean_h: Positive | None = None
    sigma: Positive | None = None
    scale_h: Positive | None = None
    shape: Positive | None = None
    samples_h: tuple[Positive, ...] = ()


@dataclass(frozen=True)
class KindSection:
    """`hardware` and `software`: a share of the failures, and their repair."""

    __pydantic_config__ = _NO_OTHER_KEYS

    share: Share
    repair_h: Positive | None = None
    repair: RepairSection | None = None


@dataclass(frozen=True)
class CauseSection:
    """`[[failures.cause]]`: one kind of failure of its own."""

    __pydantic_config__ = _NO_OTHER_KEYS

    name: Text
    rate_per_gpu_day: NonNegative | None = None
    rate_per_node_day: NonNegative | None = None
    rate_per_domain_day: NonNegative | None = None
    rate_per_1000_node_days: NonNegative | None = None
    blast: Blast | None = None
    blast_gpus: Count | None = None
    repair_h: Positive | None = None
    repair: RepairSection | None = None


@dataclass(frozen=True)
class LemonsSection:
    """`lemons`: a share of the nodes fails `factor` times as often; the fleet's mean rate stays."""

    __pydantic_config__ = _NO_OTHER_KEYS

    share: Share
    factor: Positive


@dataclass(frozen=True)
class BurstsSection:
    """`bursts`: a share of the failures comes bunched, `failures` within `within_h` hours."""

    __pydantic_config__ = _NO_OTHER_KEYS

    share: Share
    failures: Factor
    within_h: Positive


@dataclass(frozen=True)
class ColumnsSection(Columns):
    """`[failures.log.columns]`, and so on: the values of `log_format`, read from a file."""

    __pydantic_config__ = _NO_OTHER_KEYS


@dataclass(frozen=True)
class ClockSection(Clock):
    __pydantic_config__ = _NO_OTHER_KEYS


@dataclass(frozen=True)
class WindowSection(Window):
    __pydantic_config__ = _NO_OTHER_KEYS


@dataclass(frozen=True)
class NodesSection(Nodes):
    __pydantic_config__ = _NO_OTHER_KEYS


@dataclass(frozen=True)
class LogSection:
    """`[failures.log]`: what happened. `path` is seen from the folder of the file."""

    __pydantic_config__ = _NO_OTHER_KEYS

    path: Text
    format: FileKind = ""
    columns: ColumnsSection = field(default_factory=ColumnsSection)
    clock: ClockSection = field(default_factory=ClockSection)
    window: WindowSection = field(default_factory=WindowSection)
    nodes: NodesSection = field(default_factory=NodesSection)
    expand: Expand = ""
    repair_h: NonNegative = 0.0
    instant_s: NonNegative = 1.0
    end_without_start: Orphans = "bad"
    lost_xids: tuple[Whole, ...] = ()
    pci: tuple[Text, ...] = ()
    delimiter: str = ","


@dataclass(frozen=True)
class FailuresSection:
    """`[failures]`: a published rate, one rate with its shares, causes, or a log."""

    __pydantic_config__ = _NO_OTHER_KEYS

    catalog: Text | None = None
    rate_per_gpu_day: NonNegative | None = None
    rate_per_node_day: NonNegative | None = None
    rate_per_domain_day: NonNegative | None = None
    rate_per_1000_node_days: NonNegative | None = None
    rate_factor: NonNegative = 1.0
    blast: Blast | None = None
    blast_gpus: Count | None = None
    repair_h: Positive | None = None
    repair: RepairSection | None = None
    hardware: KindSection | None = None
    software: KindSection | None = None
    cause: tuple[CauseSection, ...] = ()
    lemons: LemonsSection | None = None
    bursts: BurstsSection | None = None
    log: LogSection | None = None
    steady_start: bool = False


@dataclass(frozen=True)
class TransitionSection:
    """`[transition]`: what a change of placement costs, for every policy that does not say."""

    __pydantic_config__ = _NO_OTHER_KEYS

    detect_s: NonNegative = 0.0
    regroup_s: NonNegative = 0.0
    transfer_s: NonNegative = 0.0
    restart_s: NonNegative = 0.0
    redo_s: NonNegative = 0.0
    checkpoint_every_s: NonNegative = 0.0


@dataclass(frozen=True)
class PolicySection:
    """`[policies.NAME]`: None where the policy's own default holds, or `[transition]`."""

    __pydantic_config__ = _NO_OTHER_KEYS

    kind: Kind | None = None
    degrees: tuple[Count, ...] | None = None
    min_degree: Count | None = None
    one_degree: bool | None = None
    batch: Batch | None = None
    grain: Grain | None = None
    batch_at: dict[str, Whole] | None = None
    speed_at: dict[str, Share] | None = None
    packing: Packing | None = None
    spare_domains: Whole | None = None
    spare_unit: Literal["domain", "replica"] | None = None
    max_speedup: Factor | None = None
    speedup_at: dict[str, Factor] | None = None
    on_failure: OnFailure | None = None
    repack: Repack | None = None
    detect_s: NonNegative | None = None
    regroup_s: NonNegative | None = None
    transfer_s: NonNegative | None = None
    restart_s: NonNegative | None = None
    redo_s: NonNegative | None = None
    checkpoint_every_s: NonNegative | None = None


@dataclass(frozen=True)
class HardwareSection:
    """`[hardware]`: `perf`, a CONFIG.toml of `nonuniform perf` that says how fast a replica is at a
    degree; `rack`, one of the catalog or a RACK.toml, that says how far its GPUs can be boosted.
    Paths are seen from the folder of the file. For every policy that does not say itself."""

    __pydantic_config__ = _NO_OTHER_KEYS

    perf: Text | None = None
    rack: Text | None = None


@dataclass(frozen=True)
class RunSection:
    """`[run]`: how long and how often. A log knows how long it is and happened once, so these two
    are for drawn failures: a year and 100 seeds; `seed` is the first of them."""

    __pydantic_config__ = _NO_OTHER_KEYS

    days: Positive | None = None
    seeds: Count | None = None
    seed: Whole = 1


@dataclass(frozen=True)
class Scenario:
    """One file, checked. Paths in it are absolute."""

    __pydantic_config__ = _NO_OTHER_KEYS

    cluster: ClusterSection
    job: JobSection
    failures: FailuresSection
    transition: TransitionSection = field(default_factory=TransitionSection)
    hardware: HardwareSection = field(default_factory=HardwareSection)
    policies: dict[str, PolicySection] = field(default_factory=dict)
    run: RunSection = field(default_factory=RunSection)
