"""What was saved at any degrees is loaded at any others, bit by bit, also by other tools."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standins.checkpoints import identity, ranks, save, snapshots, write_parts
from standins.shards import CPU, KV_GROUPS, SHARED_KV, Whole, cut, plan_of, same_bits, some_whole
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from nonuniform.config import BatchConfig, JobConfig, ModelConfig, ParallelConfig, RunConfig
from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape
from nonuniform.train.checkpoint import load, part
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.load import load_shard
from nonuniform.train.checkpoint.part import (
    Part,
    all_units,
    slot_name,
    take_snapshot,
    write_part,
)
from nonuniform.train.checkpoint.shelf import Checkpoint, Shelf
from nonuniform.train.data import Corpus
from nonuniform.train.state import SLOTS

SHAPES = {"shared KV": SHARED_KV, "KV groups": KV_GROUPS}
DTYPES = [torch.float32, torch.float64]
MIXES = [(1,), (2,), (3,), (4,), (3, 2), (4, 4), (2, 1, 4)]


def logical(plan: ModelPlan, whole: Whole) -> dict[str, torch.Tensor]:
    """The whole as full tensors in their natural orientation, by name in the checkpoint."""
    found = {}
    for tensor in plan.tensors:
        for slot, matrix in zip(SLOTS, whole[tensor.name], strict=True):
            turned = matrix.t() if tensor.axis == 1 else matrix
            found[slot_name(tensor.name, slot)] = turned.reshape(tensor.shape).contiguous()
    return found


def assert_loads_everywhere(checkpoint: Checkpoint, plan: ModelPlan, whole: Whole) -> None:
    dtype = next(iter(whole.values()))[0].dtype
    for degree in range(1, plan.base + 1):
        for label in range(degree):
            loaded = load_shard(checkpoint, plan, (degree, label), dtype, CPU)
            assert same_bits(loaded, cut(plan, whole, degree, label, checkpoint.step))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("degrees", MIXES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_saved_at_any_degrees_loaded_at_any_other(
    shape: ModelShape, degrees: tuple[int, ...], dtype: torch.dtype, tmp_path: Path
) -> None:
    """Also where a rank holds nothing of some module."""
    plan = plan_of(replace(shape, layers=1), 4, empty=True)
    whole = some_whole(plan, seed=2, dtype=dtype)
    checkpoint = save(Shelf(tmp_path, 1), plan, whole, ranks(*degrees), step=40)
    assert_loads_everywhere(checkpoint, plan, whole)


def test_there_and_back(tmp_path: Path) -> None:
    """Loaded at another degree and saved from there: the same logical state."""
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    save(Shelf(tmp_path / "first", 1), plan, whole, ranks(3), step=4)
    shelf = Shelf(tmp_path / "second", 1)
    target = shelf.open_part_folder(4)
    parts, written = [], set()
    for holding in ranks(2):
        where = (holding.degree, holding.label)
        state = load_shard(tmp_path / "first" / "step-00000004", plan, where, torch.float64, CPU)
        units = [unit for unit in all_units(state) if unit not in written]
        written |= set(units)
        parts.append(write_part(take_snapshot(state, units), target, holding.gpu))
    assert_loads_everywhere(shelf.complete(4, 0, identity(), parts, plan), plan, whole)


def test_the_units_of_another_base_degree_do_not_matter(tmp_path: Path) -> None:
    shape = replace(SHARED_KV, heads=8, kv_heads=4, ffn=64, vocab=96)
    plans = [plan_of(shape, 1, 1, True), plan_of(shape, 8, 5, True)]
    assert plans[0].tensors != plans[1].tensors
    whole = some_whole(plans[0], seed=2)
    checkpoint = save(Shelf(tmp_path, 1), plans[0], whole, ranks(1), step=4)
    assert_loads_everywhere(checkpoint, plans[1], whole)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_other_tools_load_full_tensors(shape: ModelShape, tmp_path: Path) -> None:
    plan = plan_of(shape, 3)
    whole = some_whole(plan, seed=2, dtype=torch.float32)
    checkpoint = save(Shelf(tmp_path, 1), plan, whole, ranks(3, 2), step=40)
    expected = logical(plan, whole)
    found = {name: torch.full_like(tensor, torch.nan) for name, tensor in expected.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that there is no process group
        torch_dcp.load(found, checkpoint_id=checkpoint.path)
        dcp_to_torch_save(checkpoint.path, tmp_path / "one.pt")
    one = torch.load(tmp_path / "one.pt", weights_only=True)
    assert one.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)
        assert torch.equal(one[name], tensor)


def test_two_saves_are_equal_byte_by_byte(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    folders = [
        save(Shelf(tmp_path / name, 1), plan, whole, ranks(3, 2), step=4).path
        for name in ("first", "second")
    ]
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    assert ".metadata" in names[0]
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_each_element_is_written_once(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    parts = write_parts(Shelf(tmp_path, 1), plan, whole, ranks(3, 3, 2), step=4)
    items = [item for each in parts for item in each.items]
    assert max(Counter((item.fqn, item.offsets) for item in items).values()) == 1
    elements = sum(torch.Size(item.sizes).numel() for item in items)
    assert elements == len(SLOTS) * sum(tensor.elements for tensor in plan.tensors)
    assert sum(1 for each in parts if each.files) == len(parts)


def test_a_snapshot_is_memory_of_its_own(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    for where in ((1, 0), (2, 1)):
        state = cut(plan, whole, *where, step=4)
        snapshot = take_snapshot(state, all_units(state))
        before = write_part(snapshot, tmp_path, "0/0")
        for slots in state.matrices.values():
            for matrix in slots:
                matrix.zero_()
        state.step += 1
        assert write_part(snapshot, tmp_path, "0/0") == before
        held = sum(m.nbytes for slots in state.matrices.values() for m in slots)
        assert snapshot.nbytes == held


def test_one_who_writes_nothing_has_a_part_without_files(tmp_path: Path) -> None:
    state = cut(plan_of(KV_GROUPS, 3), some_whole(plan_of(KV_GROUPS, 3), 2), 3, 0, step=4)
    assert write_part(take_snapshot(state, ()), tmp_path, "0/0") == Part("0/0", 4, (), ())
    assert list(tmp_path.iterdir()) == []


def test_large_pieces_are_split_at_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(KV_GROUPS, 4)
    whole = some_whole(plan, seed=2)
    few = write_parts(Shelf(tmp_path / "few", 1), plan, whole, ranks(1), step=4)
    monkeypatch.setattr(part, "PIECE_BYTES", 64)
    checkpoint = save(Shelf(tmp_path / "many", 1), plan, whole, ranks(1), step=4)
    many = checkpoint.manifest.items
    assert len(many) > len(few[0].items) == len(SLOTS) * len(plan.tensors)
    large = [i for i in many if i.fqn == "embed.weight"]
    assert [item.sizes for item in large] == [(2, 4)] * 4 + [(1, 4)]
    assert_loads_everywhere(checkpoint, plan, whole)


def test_only_what_the_rank_needs_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(KV_GROUPS, 4)
    whole = some_whole(plan, seed=2)
    checkpoint = save(Shelf(tmp_path, 1), plan, whole, ranks(4), step=4)
    read: list[str] = []
    true_load = torch.load

    def counted(file: io.BytesIO, **options: Any) -> Any:
        read.append("")
        return true_load(file, **options)

    monkeypatch.setattr(load.torch, "load", counted)
    load_shard(checkpoint, plan, (4, 2), torch.float64, CPU)
    norms = sum(tensor.axis is None for tensor in plan.tensors)
    own = {item.fqn for item in checkpoint.manifest.items if item.file.endswith("0-2.distcp")}
    assert norms
    assert len(read) == len(own | {n for n in logical(plan, whole) if "norm" in n})
    assert len(read) < len(checkpoint.manifest.items) / 2


def test_a_new_interpreter_without_groups_loads(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    checkpoint = save(Shelf(tmp_path, 1), plan, whole, ranks(3, 2), step=40)
    program = (
        "import sys, torch; from pathlib import Path\n"
        "from nonuniform.layout.model_plan import ModelShape, plan_llama\n"
        "from nonuniform.train.checkpoint.load import load_shard\n"
        f"plan = plan_llama({SHARED_KV!r}, 3, 1)\n"
        "state = load_shard(Path(sys.argv[1]), plan, (2, 1), torch.float64, torch.device('cpu'))\n"
        "assert not torch.distributed.is_initialized()\n"
        "assert 'torch.distributed.checkpoint' not in sys.modules\n"  # slow to import
        "print(state.step, float(sum(m.sum() for s in state.matrices.values() for m in s)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(checkpoint.path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = cut(plan, whole, 2, 1).matrices.values()
    total = float(sum(matrix.sum() for slots in expected for matrix in slots))
    assert done.stdout == f"40 {total}\n"


@contextmanager
def full_after(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    """A disk that takes `count` bytes more."""

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            nonlocal count
            count -= len(data)
            if count < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    with monkeypatch.context() as patch:
        patch.setattr(part, "open", lambda path, mode: Full(path, mode), raising=False)
        yield


@pytest.mark.parametrize("room", [0, 1, 1000, 3000, 20000])
def test_a_full_disk_is_told_and_nothing_is_left(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=2)
    shelf = Shelf(tmp_path, 1)
    folder = shelf.open_part_folder(4)
    snapshot = snapshots(plan, whole, ranks(1), 4)["0/0"]
    with full_after(monkeypatch, room), pytest.raises(OSError, match="No space left"):
        write_part(snapshot, folder, "0/0")
    assert list(folder.iterdir()) == []
    done = write_part(snapshot, folder, "0/0")
    assert_loads_everywhere(shelf.complete(4, 0, identity(), [done], plan), plan, whole)


def test_a_disk_that_is_full_when_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems say so only then."""
    plan = plan_of(SHARED_KV, 3)
    snapshot = snapshots(plan, some_whole(plan, seed=2), ranks(1), 4)["0/0"]

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(part.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_part(snapshot, tmp_path, "0/0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["../secret", "/etc/secret", "a/b", "..", ".", "", "a\x00", 7])
def test_a_file_name_never_leads_out_of_the_folder(file: object, tmp_path: Path) -> None:
    plan = plan_of(KV_GROUPS, 3)
    parts = write_parts(Shelf(tmp_path, 1), plan, some_whole(plan, seed=2), ranks(1), step=4)
    told = parts[0].to_json()
    told["files"][0][0] = file
    with pytest.raises(ValueError, match="no part of a checkpoint"):
        Part.from_json(told)
    told = parts[0].to_json()
    told["items"][0][5] = file
    with pytest.raises(ValueError, match="no part of a checkpoint"):
        Part.from_json(told)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = plan_of(KV_GROUPS, 3)
    shelf = Shelf(tmp_path_factory.mktemp("described"), 1)
    one = write_parts(shelf, plan, some_whole(plan, seed=2), ranks(1), step=4)[0]
    return json.dumps(replace(one, items=one.items[:2]).to_json())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_json_that_is_no_part_is_refused(data: st.DataObject, described: str) -> None:
    """Whatever stands at any place: a part or a ValueError, never another exception."""
    told: Any = json.loads(described)
    at: Any = told
    key = data.draw(st.sampled_from(sorted(told)))
    while isinstance(at[key], list) and at[key] and data.draw(st.booleans()):
        at, key = at[key], data.draw(st.integers(0, len(at[key]) - 1))
    strange = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    at[key] = data.draw(strange | st.lists(strange, max_size=9))
    try:
        again = Part.from_json(told)
    except ValueError:
        return
    assert Part.from_json(json.loads(json.dumps(again.to_json()))) == again


@pytest.mark.parametrize("gpu", ["../x", "0/0\n", "", "a b"])
def test_a_strange_name_of_a_gpu_is_no_file(gpu: str, tmp_path: Path) -> None:
    state = cut(plan_of(KV_GROUPS, 3), some_whole(plan_of(KV_GROUPS, 3), 2), 3, 0)
    if gpu == "../x":  # a slash becomes a dash: it stays inside
        written = write_part(take_snapshot(state, all_units(state)), tmp_path, gpu)
        assert [path.name for path in tmp_path.iterdir()] == [written.files[0].name]
        return
    if gpu == "":
        gpu = " "
    with pytest.raises(ValueError, match="no name for a file"):
        write_part(take_snapshot(state, all_units(state)), tmp_path, gpu)


def test_another_model_or_dtype_is_refused_by_name(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    checkpoint = save(Shelf(tmp_path, 1), plan, some_whole(plan, seed=2), ranks(3), step=4)
    with pytest.raises(RunFailed, match=r"embed\.weight is float64, not torch\.float32"):
        load_shard(checkpoint, plan, (1, 0), torch.float32, CPU)
    wider = plan_of(replace(SHARED_KV, ffn=8), 3)
    with pytest.raises(RunFailed, match=r"gate\.weight has the shape \[7, 4\] there and \[8, 4\]"):
        load_shard(checkpoint, wider, (1, 0), torch.float64, CPU)
    deeper = plan_of(replace(SHARED_KV, layers=3), 3)
    with pytest.raises(RunFailed, match=r"layers\.2\.attention_norm\.weight has 0 of 1 rows"):
        load_shard(checkpoint, deeper, (1, 0), torch.float64, CPU)
    with pytest.raises(RunFailed, match="nowhere"):
        load_shard(tmp_path / "nowhere", plan, (1, 0), torch.float64, CPU)


def test_damage_after_the_check_is_noticed_while_loading(tmp_path: Path) -> None:
    plan = plan_of(SHARED_KV, 3)
    checkpoint = save(Shelf(tmp_path, 1), plan, some_whole(plan, seed=2), ranks(1), step=4)
    path = checkpoint.path / checkpoint.manifest.items[0].file
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RunFailed, match="is not as it was written"):
        load_shard(checkpoint, plan, (1, 0), torch.float64, CPU)
    path.unlink()
    with pytest.raises(RunFailed, match="No such file"):
        load_shard(checkpoint, plan, (1, 0), torch.float64, CPU)


def test_who_may_go_on_from_a_checkpoint() -> None:
    job = JobConfig(
        model=ModelConfig(layers=2, hidden=8, heads=2),
        parallel=ParallelConfig(replicas=2, degree=2),
        batch=BatchConfig(sequences=8, length=16),
        run=RunConfig(steps=4, seed=2**62 + 1),
    )
    corpus = Corpus("/", (("a", 600), ("b", 400)))
    mine = Identity.of(job, corpus)
    assert Identity.from_json(json.loads(json.dumps(mine.to_json()))) == mine
    other = replace(
        job, parallel=ParallelConfig(replicas=3, degree=1), run=replace(job.run, steps=9)
    )
    assert mine.complaint(Identity.of(other, corpus)) is None
    longer = Identity.of(replace(job, batch=replace(job.batch, length=32)), corpus)
    assert mine.complaint(longer) == ("[batch] length = 32, but the checkpoint was written with 16")
    shorter = Identity.of(job, Corpus("/", (("a", 600),)))
    assert mine.complaint(shorter) == (
        "bytes of [data] text = 600, but the checkpoint was written with 1000"
    )
    wide = replace(mine, hidden=16, tied=False)
    assert mine.complaint(wide) == (
        "[model] hidden = 16, but the checkpoint was written with 8 (and 1 more)"
    )
