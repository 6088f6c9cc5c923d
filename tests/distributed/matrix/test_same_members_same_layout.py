"""The same members get the same generation, in whatever order they came and told what they hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.layout.model_plan import ModelShape, plan_llama
from nonuniform.placement.ntp import NtpOptions
from nonuniform.protocol.record import Position, Report
from nonuniform.protocol.regroup import next_record, transfer_of

REPLICAS, DEGREE = 3, 3
PLAN = plan_llama(
    ModelShape(
        layers=1, hidden=48, heads=12, kv_heads=4, head_dim=4, ffn=128, vocab=256, tied=True
    ),
    DEGREE,
    1,
    False,
)
GPUS = [f"{r}/{i}" for r in range(REPLICAS) for i in range(DEGREE)]


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[str], list[str], list[int]]:
    """(who was lost, who came back, what the survivors tell of: 0 the step, 1 nothing)."""
    lost = draw(st.lists(st.sampled_from(GPUS), unique=True, max_size=7))
    back = draw(st.lists(st.sampled_from(lost), unique=True)) if lost else []
    return lost, back, draw(st.lists(st.integers(0, 1), min_size=9, max_size=9))


@settings(max_examples=60, deadline=None)
@given(arrivals(), st.integers(0, 2), st.data())
def test_any_order_gives_the_same_record(
    arrival: tuple[list[str], list[str], list[int]], spares: int, data: Any
) -> None:
    lost, back, empty = arrival
    options = NtpOptions(min_degree=1, sequences=9)
    whole = ClusterState(REPLICAS, DEGREE, spares=spares)
    before, _ = next_record(PLAN, options, whole, (), Position(0, 0), 1)
    told = [
        Report(m.gpu, 5, DEGREE, m.label) if not empty[i] or m.replica == 2 else None
        for i, m in enumerate(before.placement.members())
    ]
    safe = [gpu for gpu in lost if not gpu.startswith("2/")]  # else nobody may hold some unit
    reports = [report for report in told if report is not None and report.gpu not in safe]
    came = [gpu for gpu in back if gpu in safe]

    def made(order: Any) -> tuple[Any, ...]:
        state = whole
        for kind, gpus in (("failed", order(safe)), ("returned", order(came))):
            for gpu in gpus:
                state = state.apply(HealthEvent(kind, parse_gpu(gpu)))
        record, reason = next_record(
            PLAN, options, state, order(reports), Position(5, 0), 2, before.placement
        )
        moves = transfer_of(PLAN, record)
        assert not moves.missing
        return record, reason, moves

    assert made(list) == made(lambda values: data.draw(st.permutations(values)))
