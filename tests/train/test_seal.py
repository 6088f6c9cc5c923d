"""Values that prove who wrote them: what is forged, moved or of another run counts as nothing."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import RunFailed
from nonuniform.train.seal import Forged, SealedStore, new_secret

SECRET = "only the job knows"


@pytest.fixture
def raw() -> Any:
    return dist.HashStore()


@pytest.fixture
def store(raw: Any) -> SealedStore:
    return SealedStore(raw, SECRET)


@given(key=st.text("abc/0123456789", min_size=1), value=st.text())
def test_a_value_is_read_as_it_was_written(key: str, value: str) -> None:
    raw: Any = dist.HashStore()
    SealedStore(raw, SECRET).set(key, value)
    assert SealedStore(raw, SECRET).get(key) == value.encode()
    assert raw.get(key) != value.encode()


@pytest.mark.parametrize("value", ["", "1", "0" * 31, "0" * 32, "0" * 32 + "commit"])
def test_a_value_without_a_seal_is_forged(raw: Any, store: SealedStore, value: str) -> None:
    raw.set("g1/over", value)
    with pytest.raises(Forged, match=r"^g1/over on the store of the run does not prove the job's"):
        store.get("g1/over")


def test_a_seal_of_another_secret_is_forged(raw: Any, store: SealedStore) -> None:
    SealedStore(raw, SECRET + ".").set("key", "value")
    with pytest.raises(Forged):
        store.get("key")


def test_a_seal_belongs_to_its_key(raw: Any, store: SealedStore) -> None:
    """A vote that was copied to another step is none."""
    store.set("g1/train3/vote/0/0", "yes")
    raw.set("g1/train4/vote/0/0", raw.get("g1/train3/vote/0/0").decode())
    with pytest.raises(Forged):
        store.get("g1/train4/vote/0/0")


def test_key_and_value_cannot_be_cut_elsewhere(raw: Any, store: SealedStore) -> None:
    store.set("ab", "c")
    raw.set("a", raw.get("ab")[:32].decode() + "bc")
    with pytest.raises(Forged):
        store.get("a")


@pytest.mark.parametrize("place", [0, 31, 32, 33])
def test_one_bit_is_enough(raw: Any, store: SealedStore, place: int) -> None:
    store.set("key", "value")
    sealed = bytearray(raw.get("key"))
    sealed[place] ^= 1
    raw.set("key", sealed.decode())
    with pytest.raises(Forged):
        store.get("key")


def test_what_is_forged_ends_the_run_of_who_has_waited_for_it() -> None:
    assert issubclass(Forged, RunFailed)


def test_what_is_not_there_is_not_forged(store: SealedStore) -> None:
    assert not store.check(["key"])
    with pytest.raises(dist.DistStoreError):
        store.wait(["key"], datetime.timedelta(milliseconds=20))
    assert not store.delete_key("key")
    store.set("key", "value")
    assert store.check(["key"])
    assert store.delete_key("key")
    assert not store.check(["key"])


def test_who_decides_first_decides(raw: Any, store: SealedStore) -> None:
    other = SealedStore(raw, SECRET)
    assert store.compare_set("outcome", "", "commit") == b"commit"
    assert other.compare_set("outcome", "", "abort") == b"commit"
    assert other.get("outcome") == b"commit"
    assert other.compare_set("outcome", "abort", "undone") == b"commit"
    assert other.compare_set("outcome", "commit", "done") == b"done"
    assert store.get("outcome") == b"done"


def test_a_stranger_decides_nothing(raw: Any, store: SealedStore) -> None:
    stranger = SealedStore(raw, "guessed")
    store.compare_set("outcome", "", "commit")
    with pytest.raises(Forged):
        stranger.compare_set("outcome", "commit", "abort")
    assert store.get("outcome") == b"commit"
    stranger.compare_set("other", "", "abort")
    with pytest.raises(Forged):
        store.compare_set("other", "", "commit")


def test_counters_are_plain(raw: Any, store: SealedStore) -> None:
    assert [store.add("votes", 1), raw.add("votes", 1), store.add("votes", 1)] == [1, 2, 3]


def test_each_job_has_a_secret_of_its_own() -> None:
    secrets = {new_secret() for _ in range(20)}
    assert len(secrets) == 20
    assert {len(secret) for secret in secrets} == {64}
