"""How much of the batch each replica takes, where most replicas are alike.

In: replicas by their degrees, the number of replicas that the whole job has. Out: classes of
replicas with their speed and share, and how long the step takes. DESIGN "Generations" and
"Policies". Knows nothing of how the replicas came together.

Speeds are whole numbers on a scale that belongs to the job, so floors are exact and ties are ties.
A batch that shrinks keeps the step time: a replica takes as many whole grains as it finishes by
then. A fixed batch is dealt by the rule of `shares.batch_shares`, one class at a time, and the step
takes as long as the slowest replica; replicas with which it would take longer than without them
are left out.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.packing import Team
from nonuniform.placement.policy import PolicyOptions

Share = int | Fraction


@dataclass(frozen=True)
class ReplicaClass:
    """`number` replicas alike. `degrees` by stage, descending, the stages with fewer layers last;
    `speed` against a healthy replica, after boost; `share`: sequences of a step."""

    number: int
    degrees: tuple[int, ...]
    speed: Fraction
    share: Share
    boosted: bool = False


@dataclass(frozen=True)
class Shared:
    """`step_time` against the step of the whole job; `throughput` likewise, exact."""

    classes: tuple[ReplicaClass, ...]
    step_time: Fraction
    throughput: Fraction


class _Paced(NamedTuple):
    """A team with its speed on the scale of the job."""

    speed: int
    degrees: tuple[int, ...]
    number: int
    boosted: bool


class Pace:
    """Speeds and whole-grain shares of the replicas of one job under one policy."""

    def __init__(self, job: TrainingJob, options: PolicyOptions) -> None:
        self.batch = job.sequences_per_replica
        self._degree = job.degree
        self._last_long = job.stages - job.short_stages - 1
        self._long_layers, self._short_layers = job.long_layers, job.short_layers
        self._grain = job.microbatch_sequences if options.grain == "microbatch" else 1
        self._in_tokens = options.grain == "token"
        self._batch_at = dict(options.batch_at)
        self._plain = _plain_speeds(job, options)
        self._boosted = _boosted_speeds(self._plain, options) if options.boosts else self._plain
        fractions = (*self._plain.values(), *self._boosted.values())
        self.scale = math.lcm(*(f.denominator for f in fractions)) * job.short_layers
        # The few different replicas come again and again in the many states of a cluster.
        self._speeds: dict[tuple[int, int], tuple[int, bool]] = {}
        self._relative: dict[int, Fraction] = {}

    def paced(self, team: Team) -> _Paced:
        """The slowest stage sets the speed; in each kind of stage that is the lowest degree."""
        degrees, number = team
        lowest = degrees[self._last_long], degrees[-1]
        known = self._speeds.get(lowest)
        if known is None:
            known = self._speeds[lowest] = self._speed(*lowest)
        return _Paced(known[0], degrees, number, known[1])

    def _speed(self, lowest_long: int, lowest: int) -> tuple[int, bool]:
        """(speed, whether boosted)."""
        slack = Fraction(self._long_layers, self._short_layers)
        plain, boosted = (
            min(speeds[lowest_long], speeds[lowest] * slack, Fraction(1))
            for speeds in (self._plain, self._boosted)
        )
        return int(boosted * self.scale), boosted > plain

    def share(self, paced: _Paced) -> Share:
        """What the replica finishes in the step time of a healthy one, in whole grains."""
        if paced.speed == self.scale:
            return self.batch
        lowest = paced.degrees[-1]
        if lowest in self._batch_at:
            return self._batch_at[lowest]
        if self._in_tokens:
            return Fraction(self.batch * paced.speed, self.scale)
        return self.batch // self._grain * paced.speed // self.scale * self._grain

    def as_class(self, paced: _Paced, number: int, share: Share) -> ReplicaClass:
        speed = self._relative.get(paced.speed)
        if speed is None:
            speed = self._relative[paced.speed] = Fraction(paced.speed, self.scale)
        return ReplicaClass(number, paced.degrees, speed, share, paced.boosted)

    def capacity(self, teams: Sequence[Team]) -> Share:
        """Sequences that all of them finish in the step time of a healthy replica."""
        whole = sum(number for degrees, number in teams if degrees[-1] == self._degree)
        hurt = (self.paced(team) for team in teams if team[0][-1] < self._degree)
        return whole * self.batch + sum(each.number * self.share(each) for each in hurt)


def _plain_speeds(job: TrainingJob, options: PolicyOptions) -> dict[int, Fraction]:
    """By degree, against the full one."""
    given = {degree: _exact(speed) for degree, speed in options.speed_at}
    return {
        degree: given.get(degree, Fraction(degree, job.degree))
        for degree in range(1, job.degree + 1)
    }


def _boosted_speeds(plain: dict[int, Fraction], options: PolicyOptions) -> dict[int, Fraction]:
    """With as much power as there is at that degree; what more power makes faster than a higher
    degree waits for it, so that the lowest degree of a replica is its slowest."""
    given = {degree: _exact(speedup) for degree, speedup in options.speedup_at}
    usual = _exact(options.max_speedup)
    boosted = {}
    most = Fraction(1)
    for degree in sorted(plain, reverse=True):
        most = min(most, plain[degree] * given.get(degree, usual))
        boosted[degree] = max(most, plain[degree])
    return boosted


def _exact(factor: float) -> Fraction:
    """1.15 is meant as 23/20, not as the binary number beside it: floors would show it."""
    return Fraction(factor).limit_denominator(10**6)


@functools.lru_cache(maxsize=256)
def pace_of(job: TrainingJob, options: PolicyOptions) -> Pace:
    """The same for every state of a cluster."""
    return Pace(job, options)


def share_out(
    teams: Sequence[Team], replicas: int, job: TrainingJob, options: PolicyOptions
) -> Shared:
    """Teams in any order; `replicas` is what the job has when all is well."""
    pace = pace_of(job, options)
    paced = sorted(map(pace.paced, teams), reverse=True)
    if options.batch == "shrink" or not paced:
        return _shrunk(pace, paced, replicas)
    if options.grain == "token":
        return _in_tokens(pace, paced, replicas)
    grain = job.microbatch_sequences if options.grain == "microbatch" else 1
    return _dealt(pace, paced, replicas, grain)


def _shrunk(pace: Pace, paced: Sequence[_Paced], replicas: int) -> Shared:
    classes = [(p, pace.share(p)) for p in paced]
    total = sum(p.number * share for p, share in classes)
    return Shared(
        tuple(pace.as_class(p, p.number, share) for p, share in classes if share),
        Fraction(1),
        Fraction(total, replicas * pace.batch),
    )


def _in_tokens(pace: Pace, paced: Sequence[_Paced], replicas: int) -> Shared:
    """A fixed batch that can be cut anywhere: all replicas finish together."""
    speeds = sum(p.number * p.speed for p in paced)
    time = Fraction(replicas * pace.scale, speeds)
    classes = (
        pace.as_class(p, p.number, pace.batch * time * Fraction(p.speed, pace.scale)) for p in paced
    )
    return Shared(tuple(classes), time, 1 / time)


def _dealt(pace: Pace, paced: Sequence[_Paced], replicas: int, grain: int) -> Shared:
    """A fixed batch in whole grains, dealt to the fastest classes, as many as make it fastest.

    Replicas of another class make the step longer only if a single grain takes the slowest of them
    that long: if it takes them less, no smaller choice is better.
    """
    speeds, numbers = _by_speed(paced)
    grains = replicas * pace.batch // grain
    best: tuple[Fraction, list[tuple[int, int]]] | None = None
    for used in range(len(speeds), 0, -1):
        deal = class_shares(speeds[:used], numbers[:used], grains)
        time = max(
            Fraction(share + (more > 0), speed)
            for speed, (share, more) in zip(speeds, deal, strict=False)
        )
        if best is None or time < best[0]:
            best = time, deal
        if time > Fraction(1, speeds[used - 1]):
            break
    assert best is not None, "no replicas to deal to"
    step_time = best[0] * grain * pace.scale / pace.batch
    classes = _split_classes(pace, paced, dict(zip(speeds, best[1], strict=False)), grain)
    return Shared(tuple(classes), step_time, 1 / step_time)


def _by_speed(paced: Sequence[_Paced]) -> tuple[list[int], list[int]]:
    numbers: dict[int, int] = {}
    for p in paced:
        numbers[p.speed] = numbers.get(p.speed, 0) + p.number
    return list(numbers), list(numbers.values())


def _split_classes(
    pace: Pace, paced: Sequence[_Paced], deal: dict[int, tuple[int, int]], grain: int
) -> list[ReplicaClass]:
    """Classes of equal speed and share; the first replicas of a speed hold the larger share."""
    classes = []
    given: dict[int, int] = {}
    for p in paced:
        if p.speed not in deal:
            continue
        share, more = deal[p.speed]
        larger = min(p.number, more - given.get(p.speed, 0))
        given[p.speed] = given.get(p.speed, 0) + larger
        for number, grains in ((larger, share + 1), (p.number - larger, share)):
            if number:
                classes.append(pace.as_class(p, number, grains * grain))
    return classes


def class_shares(
    speeds: Sequence[int], numbers: Sequence[int], grains: int
) -> list[tuple[int, int]]:
    """What `batch_shares` gives to `numbers[c]` replicas of `speeds[c]` each, class after class.

    Of class c all replicas take `share`, the first `more` of them one grain on top: (share, more).
    """
    shares = _whole_start(speeds, numbers, grains)
    left = grains - sum(share * number for share, number in zip(shares, numbers, strict=True))
    more = [0] * len(speeds)
    # Times of the next grain, all with the same denominator.
    unit = math.lcm(*speeds)
    ticks = [unit // speed for speed in speeds]
    queue = [((shares[c] + 1) * ticks[c], c) for c in range(len(speeds))]
    heapq.heapify(queue)
    while left:
        time, c = queue[0]
        if left < numbers[c]:
            more[c] = left
            break
        shares[c] += 1
        left -= numbers[c]
        heapq.heapreplace(queue, (time + ticks[c], c))
    return list(zip(shares, more, strict=True))


def _whole_start(speeds: Sequence[int], numbers: Sequence[int], grains: int) -> list[int]:
    """What every replica gets in any case: the first steps of the dealing, all at once.

    A class too slow for one whole grain gets one all the same; that lowers the time that the others
    share, which may make further classes too slow.
    """
    shares = [0] * len(speeds)
    others = list(range(len(speeds)))
    while others:
        total = sum(speeds[c] * numbers[c] for c in others)
        slow = [c for c in others if grains * speeds[c] < total]
        if not slow:
            for c in others:
                shares[c] = grains * speeds[c] // total
            break
        for c in slow:
            shares[c] = 1
            grains -= numbers[c]
        others = [c for c in others if not shares[c]]
    return shares
