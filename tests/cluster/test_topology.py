"""GPU names: read, written and ordered by number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.topology import Gpu, parse_gpu
from nonuniform.errors import BadInput


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_name_reads_back_as_itself(replica: int, index: int) -> None:
    assert parse_gpu(str(Gpu(replica, index))) == Gpu(replica, index)


def test_order_is_by_number_not_by_letter() -> None:
    names = ["10/0", "0/10", "2/1", "0/9"]
    assert [str(gpu) for gpu in sorted(map(parse_gpu, names))] == ["0/9", "0/10", "2/1", "10/0"]


@pytest.mark.parametrize(
    "text", ["", "1", "1/", "/1", "-1/0", "1/2/3", "a/b", "1.0/2", " 1/2", "²/1"]
)
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(BadInput, match="expected R/I") as caught:
        parse_gpu(text)
    assert f'"{text}"' in str(caught.value)
