"""GPUs are lost and come back: shards move, training goes on, one process sees no difference.

Parameters and both moments after every generation, in double precision; and what arrives wrong
is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from loopback.cases import Case, job_of, tokens_of
from loopback.compare import (
    WITHIN,
    copies_that_differ,
    differences,
    plan_of,
    scalars_that_differ,
)
from loopback.generations import Arrival, DamageOrder, LifeOrder, live, receive
from loopback.pool import Pool
from loopback.reference import OneProcess

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.config import JobConfig
from nonuniform.placement.ntp import NtpOptions
from nonuniform.protocol.regroup import Position, next_record, transfer_of
from nonuniform.reshard.transfer import UnitMove
from nonuniform.train.membership import Record, Report
from nonuniform.train.session import job_plan

STEPS = 3  # of each generation
DEGREE = 4
GPUS = [f"{replica}/{index}" for replica in range(2) for index in range(DEGREE)]


@dataclass(frozen=True)
class Story:
    """What happens to which GPUs between the generations, and the degrees that it leads to."""

    lost: tuple[tuple[str, ...], ...]  # at each change; those lost before are back
    degrees: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return "then".join(".".join(gpus).replace("/", "") or "none" for gpus in self.lost)


ONE = Story((("1/1",), ()), ((4, 4), (4, 3), (4, 4)))
LAST = Story((("0/3",), ("0/2",)), ((4, 4), (3, 4), (3, 4)))
MANY = Story((("0/0", "1/1"), ("1/0", "1/2"), ()), ((4, 4), (3, 3), (4, 2), (4, 4)))

LOSING = Case((4, 2), (12, 4), steps=9)


def records_of(job: JobConfig, story: Story) -> list[Record]:
    """What the launcher would publish: the same pure functions, fed with what would be reported."""
    plan = job_plan(job)
    options = NtpOptions(job.parallel.min_degree, job.batch.sequences)
    records: list[Record] = []
    for index, lost in enumerate(((), *story.lost)):
        state = ClusterState(2, DEGREE)
        for gpu in lost:
            state = state.apply(HealthEvent("failed", parse_gpu(gpu)))
        reports = [r for r in _reports(records, index * STEPS) if r.gpu not in lost]
        record, _ = next_record(plan, options, state, reports, Position(index * STEPS, 0), index)
        records.append(record)
    return records


def _reports(records: Sequence[Record], step: int) -> list[Report]:
    if not records:
        return []
    placement = records[-1].placement
    degrees = {entry.replica: entry.degree for entry in placement.replicas}
    return [Report(m.gpu, step, degrees[m.replica], m.label) for m in placement.members()]


@pytest.mark.parametrize(
    ("case", "story"),
    [
        (LOSING, ONE),
        (Case((4, 2), (8, 2), tied=True, accumulation=3, bucket_mb=0.1, steps=9), ONE),
        (Case((4, 2), (8, 2), ffn=240, tied=True, steps=9), LAST),
        (Case((4, 2), (4, 1), steps=12), MANY),
        (Case((4, 2), (3, 3), ffn=3, vocab=3, allow_empty=True, steps=12), MANY),
    ],
    ids=str,
)
def test_training_goes_on_as_if_nothing_had_happened(pool: Pool, case: Case, story: Story) -> None:
    job, plan = job_of(case), plan_of(case)
    records = records_of(job, story)
    assert [record.placement.degrees for record in records] == list(story.degrees)
    every = tokens_of(case)
    batches = [every[start : start + STEPS] for start in range(0, len(every), STEPS)]
    lives = pool.run(live, [LifeOrder(job, gpu, records, batches) for gpu in GPUS])
    alone = OneProcess(job)
    for index, record in enumerate(records):
        runs = [life[index] for life in lives if life[index] is not None]
        assert len(runs) == len(record.placement.members())
        found = differences(plan, runs, alone.train(batches[index]))
        assert found.largest <= WITHIN, (index, found)
        assert scalars_that_differ(runs) == []
        assert copies_that_differ(plan, runs) == []


def test_the_gpu_with_the_last_label_takes_the_free_one() -> None:
    records = records_of(job_of(LOSING), ONE)
    assert records[1].placement.replicas[1].gpus == ("1/0", "1/3", "1/2")
    assert "1/1" not in records[2].holdings
    assert sorted(records[2].placement.replicas[1].gpus) == ["1/0", "1/1", "1/2", "1/3"]


def damaged(pool: Pool, gpu: str, wrong: str) -> dict[str, Arrival]:
    """The transfer after the loss of GPU 1/1, in which something goes wrong at `gpu`."""
    job = job_of(LOSING)
    record = records_of(job, ONE)[1]
    gpus = transfer_of(job_plan(job), record).gpus()
    orders = [DamageOrder(job, one, record, wrong if one == gpu else "") for one in gpus]
    return dict(zip(gpus, pool.run(receive, orders), strict=True))


def moves_for_the_lost_gpu() -> tuple[UnitMove, ...]:
    job = job_of(LOSING)
    return transfer_of(job_plan(job), records_of(job, ONE)[1]).moves


def test_what_changed_on_the_way_is_refused(pool: Pool) -> None:
    arrivals = damaged(pool, "1/3", "wire")
    refused = arrivals.pop("1/3")
    assert refused.failure.startswith("GPU 1/3: ")
    assert "checksum" in refused.failure
    assert refused.units == 0
    assert all(arrival.failure == "" for arrival in arrivals.values())
    assert all(arrival.intact for arrival in (refused, *arrivals.values()))


def test_a_wrong_checksum_stops_whoever_received_from_there(pool: Pool) -> None:
    source = moves_for_the_lost_gpu()[0].source
    arrivals = damaged(pool, source, "sum")
    receivers = {move.target for move in moves_for_the_lost_gpu() if move.source == source}
    assert receivers
    for gpu, arrival in arrivals.items():
        assert arrival.intact
        if gpu in receivers:
            assert f"from GPU {source} have checksum" in arrival.failure
            assert arrival.units == 0
        elif gpu != source:
            assert arrival.failure == ""


def test_an_undamaged_transfer_brings_every_unit(pool: Pool) -> None:
    plan = plan_of(LOSING)
    arrivals = damaged(pool, "", "")
    for gpu, arrival in arrivals.items():
        arriving = [move for move in moves_for_the_lost_gpu() if move.target == gpu]
        tensors = sum(len(plan.tensors_of(move.family)) for move in arriving)
        assert (arrival.failure, arrival.units, arrival.intact) == ("", tensors, True)
    assert any(arrival.units for arrival in arrivals.values())
