"""What each GPU did when, from the events of a run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nonuniform.report.run_timeline import STATES, gpu_lines, gpu_order

PLACED = {"placement": {"0": ["0/0", "0/1"]}, "spares": ["1/0"]}
HURT = {"placement": {"0": ["0/0"]}, "spares": ["1/0"]}
MENDED = {"placement": {"0": ["0/0", "1/0"]}, "spares": []}


def states(gpu: str, events: list[tuple[float, str, str, dict[str, object]]]) -> list[object]:
    (line,) = [line for line in gpu_lines(events, 10.0) if line.gpu == gpu]
    return [(span.start_s, span.end_s, span.state) for span in line.spans]


def test_a_gpu_works_is_lost_warms_up_and_joins() -> None:
    events = [
        (0.5, "started", "0/1", {}), (1.0, "generation", "", PLACED), (3.0, "failed", "0/1", {}),
        (3.1, "generation", "", HURT), (5.0, "returned", "0/1", {}),
        (6.0, "generation", "", PLACED),
    ]  # fmt: skip
    assert states("0/1", events) == [
        (0.5, 1.0, "joining"), (1.0, 3.0, "working"), (3.0, 5.0, "failed"),
        (5.0, 6.0, "joining"), (6.0, 10.0, "working"),
    ]  # fmt: skip


def test_a_spare_takes_a_place() -> None:
    events = [
        (1.0, "generation", "", PLACED),
        (3.0, "failed", "0/1", {}),
        (3.1, "generation", "", MENDED),
    ]
    assert states("1/0", events) == [(1.0, 3.1, "spare"), (3.1, 10.0, "working")]


def test_a_healthy_gpu_of_a_dissolved_replica_is_a_spare() -> None:
    events = [(1.0, "generation", "", PLACED), (3.1, "generation", "", HURT)]
    assert states("0/1", events) == [(1.0, 3.1, "working"), (3.1, 10.0, "spare")]


def test_a_drained_gpu_stays_drained() -> None:
    events = [
        (1.0, "generation", "", PLACED),
        (2.0, "drained", "0/1", {}),
        (3.0, "generation", "", HURT),
    ]
    assert states("0/1", events)[-1] == (2.0, 10.0, "drained")


told = st.lists(
    st.tuples(
        st.floats(0, 20),
        st.sampled_from(["started", "failed", "returned", "drained", "resumed", "spare", "odd"]),
        st.sampled_from(["", "0/0", "0/1", "1/0", "x"]),
        st.just({}),
    )
    | st.tuples(
        st.floats(0, 20), st.just("generation"), st.just(""), st.sampled_from([PLACED, HURT, {}])
    )
)


@given(told)
def test_spans_follow_each_other_to_the_end(
    events: list[tuple[float, str, str, dict[str, object]]],
) -> None:
    for line in gpu_lines(events, 10.0):
        assert all(span.state in STATES for span in line.spans)
        assert all(a.end_s == b.start_s for a, b in zip(line.spans, line.spans[1:], strict=False))
        assert not line.spans or line.spans[-1].end_s == 10.0


def test_gpus_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["1/0", "odd", "0/10", "0/9"], key=gpu_order) == ["0/9", "0/10", "1/0", "odd"]
