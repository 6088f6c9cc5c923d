"""A hurt replica in the same model: fewer ranks, larger parts, a longer sync, perhaps a boost.

In: `Machine`, `Work`, `Parallel` of the whole job and the degree and clock of each stage. Out:
seconds, the batch share or the clock that lets a hurt replica keep up, and a band of what the
constants leave open. DESIGN "Nested layouts", "Gradient sync", "Policies". No measurement of an
uneven tensor-parallel group was found: nothing here was compared with one. Does not know: watts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq

from nonuniform.errors import BadInput
from nonuniform.perf.comm import exposed_s, gather_s, send_s
from nonuniform.perf.hardware import Constants, Machine, at_clock, machine
from nonuniform.perf.layer import layer_time, vocab_time
from nonuniform.perf.model import Model, Part, even_part, whole_part
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.pipeline import pipeline_s
from nonuniform.perf.step_time import ADAM_BYTES, SWEEP_BYTES, micro_of, stage_parameters

Cut = Literal["whole", "finer"]
MOST_CLOCK = 4.0  # where the search for a boost ends


@dataclass(frozen=True)
class Stage:
    """The tensor-parallel group of one pipeline stage: ranks that work, and their clock against
    the nominal one."""

    degree: int
    clock: float = 1.0


class Sync(NamedTuple):
    """Of a whole replica's rank when the job's smallest degree is below its own."""

    reshard_bytes: float  # sent by an extra rank, one way
    reshard_s: float  # before and after the all-reduce
    reduce_bytes: float  # that pass a sync rank's network card, as of n/m of its own shard
    reduce_s: float
    exposed_s: float


def part_at(model: Model, degree: int, cut: Cut) -> Part:
    """`finer`: units smaller than heads, so that the load is the mean."""
    return whole_part(model, degree) if cut == "whole" else even_part(model, degree)


def replica_s(
    base: Machine, work: Work, p: Parallel, stages: Sequence[Stage], cut: Cut = "whole",
    micro_batches: float | None = None,
) -> float:  # fmt: skip
    """Forward and backward of a replica's share. `micro_batches`: of the usual size; the mean
    share of the job where not given."""
    if len(stages) != p.pipeline:
        raise BadInput(f"{len(stages)} stages given where [parallel] pipeline = {p.pipeline}")
    times = [
        _stage_s(base, work, p, (stages, index), cut)
        for index in range(len(stages))
    ]  # fmt: skip
    count = p.micro_batches(work) if micro_batches is None else micro_batches
    slowest = max(times)
    return count * slowest + pipeline_s(times, 1, p.interleave) - slowest


def _stage_s(
    base: Machine, work: Work, p: Parallel, where: tuple[Sequence[Stage], int], cut: Cut
) -> float:
    stages, index = where
    stage = stages[index]
    if not 1 <= stage.degree <= p.tensor:
        raise BadInput(
            f"degree {stage.degree} of stage {index}: must be between 1 and [parallel] tensor = "
            f"{p.tensor}"
        )
    here = base if stage.clock == 1.0 else at_clock(base, stage.clock)
    part = part_at(work.model, stage.degree, cut)
    own = replace(p, tensor=stage.degree)
    micro = micro_of(here, work, own)
    layer_s = layer_time(here, work.model, part, micro).total
    seconds = work.model.layers / p.pipeline * layer_s
    if index == len(stages) - 1:
        seconds += vocab_time(here, work.model, part, micro).total
    return seconds + _crossing_s(here, work, p, where, seconds)


def _crossing_s(
    here: Machine, work: Work, p: Parallel, where: tuple[Sequence[Stage], int], beside_s: float
) -> float:
    """To the next stage: the side with fewer ranks has fewer cards to send with."""
    if p.pipeline == 1:
        return 0.0
    stages, index = where
    near = [stages[i].degree for i in (index - 1, index, index + 1) if 0 <= i < len(stages)]
    far = 2 * p.tensor * p.context * p.data > here.domain_gpus
    size = 2.0 * p.micro_batch * work.length / p.context * work.model.hidden / min(near)
    comm_s = 2 * p.interleave * send_s(here, size, far)
    return exposed_s(here, comm_s, beside_s) if p.overlap_pipeline else comm_s


def sync_of(base: Machine, work: Work, p: Parallel, sync_degree: int, beside_s: float) -> Sync:
    """Gradient sync of a whole replica while the smallest degree of the job is `sync_degree`.

    Each of the n - m extra ranks sends its whole shard to the sync ranks and gets it back; each
    sync rank then reduces n/m of its own shard through its own card. `beside_s`: computation of one
    micro-batch, which hides it."""
    n, m = p.tensor, sync_degree
    if not 1 <= m <= n:
        raise BadInput(f"sync degree {m}: must be between 1 and [parallel] tensor = {n}")
    shard = stage_parameters(work.model, p, even_part(work.model, n)) * p.gradient_bytes
    group = p.data * p.context
    near = max(1, base.domain_gpus // n)
    grown = shard * n / m
    # Where most ranks are extra, receivers are the narrow side.
    passing = shard * max(1.0, (n - m) / m) if m < n else 0.0
    reshard_s = 2 * send_s(base, passing, far=False) if m < n else 0.0
    back = grown * 2 / p.gradient_bytes if p.zero else grown  # weights in BF16, or gradients
    reduce_s = gather_s(base, grown, group, near) + gather_s(base, back, group, near)
    both = reshard_s + reduce_s
    shown = exposed_s(base, both, beside_s) if p.overlap_data else both
    return Sync(shard if m < n else 0.0, reshard_s, grown + back, reduce_s, shown)


def optimizer_s(base: Machine, work: Work, p: Parallel, degree: int, cut: Cut) -> float:
    held = stage_parameters(work.model, p, part_at(work.model, degree, cut))
    owned = held / (p.data * p.context if p.zero else 1)
    return (owned * ADAM_BYTES + held * SWEEP_BYTES) / base.memory_bytes_per_s


class Hurt(NamedTuple):
    """A replica with one stage at `degree`, against a whole one."""

    degree: int
    cut: Cut
    healthy_s: float
    hurt_s: float
    slowdown: float
    batch_share: float  # of a whole replica's, so that it is not later
    boost_clock: float | None  # with its whole share; None: no clock is enough
    sync: Sync
    healthy_sync_s: float  # what shows of the sync while no replica is hurt


def hurt_replica(
    base: Machine, work: Work, p: Parallel, degree: int, cut: Cut = "whole"
) -> Hurt:  # fmt: skip
    """What share, or what clock, lets it keep up. Sync is waited for by all replicas alike, so it
    is in no ratio."""
    whole = [Stage(p.tensor)] * p.pipeline
    healthy_s = replica_s(base, work, p, whole, cut)

    def at(clock: float) -> float:
        return replica_s(base, work, p, [Stage(degree, clock), *whole[1:]], cut)

    hurt_s = at(1.0)
    beside_s = healthy_s / p.micro_batches(work)
    return Hurt(
        degree,
        cut,
        healthy_s,
        hurt_s,
        hurt_s / healthy_s,
        _batch_share(base, work, p, degree, cut),
        _boost(at, healthy_s),
        sync_of(base, work, p, degree, beside_s),
        sync_of(base, work, p, p.tensor, beside_s).exposed_s,
    )


def _batch_share(base: Machine, work: Work, p: Parallel, degree: int, cut: Cut) -> float:
    """In micro-batches of any size; a job deals whole ones (placement/shares.py)."""
    whole = [Stage(p.tensor)] * p.pipeline
    stages = [Stage(degree), *whole[1:]]
    count = p.micro_batches(work)
    healthy_s = replica_s(base, work, p, whole, cut)
    full_s = replica_s(base, work, p, stages, cut)
    each_s = full_s - replica_s(base, work, p, stages, cut, micro_batches=count - 1)
    return min(1.0, max(0.0, 1 - (full_s - healthy_s) / each_s / count))


def _boost(at: Callable[[float], float], healthy_s: float) -> float | None:
    if at(1.0) <= healthy_s:
        return 1.0
    if at(MOST_CLOCK) > healthy_s:
        return None
    return float(brentq(lambda clock: at(clock) - healthy_s, 1.0, MOST_CLOCK, xtol=1e-9))


def spans(
    constants: Constants, fitted: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """What each constant may be: its interval where it was fitted, else a quarter up or down; time
    between kernels by a factor of two."""
    found = {}
    for key, value in asdict(constants).items():
        factor = 2.0 if key == "launch_s" else 1.25
        most = 1.0 if key in ("memory_share", "link_share", "nic_share", "hidden_share") else np.inf
        found[key] = fitted.get(key, (value / factor, min(value * factor, float(most))))
    return found


class Band(NamedTuple):
    middle: float
    low: float
    high: float


def slowdown_band(
    base: Machine, work: Work, p: Parallel, degree: int, cut: Cut,
    intervals: Mapping[str, tuple[float, float]], draws: int = 200, seed: int = 0,
) -> Band:  # fmt: skip
    """The slowdown over what the constants leave open (95%): each drawn from its interval, on a
    logarithmic scale. A band of the model's own numbers, not of what it leaves out."""
    random = np.random.default_rng(seed)
    middle = hurt_slowdown(base, work, p, degree, cut)
    found = []
    for _ in range(draws):
        drawn = {
            key: float(np.exp(random.uniform(np.log(low), np.log(high))))
            for key, (low, high) in intervals.items()
        }
        other = machine(base.gpu, replace(base.constants, **drawn), base.clock)
        found.append(hurt_slowdown(other, work, p, degree, cut))
    low, high = np.quantile(found, (0.025, 0.975))
    return Band(middle, float(low), float(high))


def hurt_slowdown(base: Machine, work: Work, p: Parallel, degree: int, cut: Cut) -> float:
    whole = [Stage(p.tensor)] * p.pipeline
    hurt = [Stage(degree), *whole[1:]]
    return replica_s(base, work, p, hurt, cut) / replica_s(base, work, p, whole, cut)
