"""What comes over the network or from a checkpoint is plain: no code path unpickles anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nonuniform.train

FOLDER = Path(nonuniform.train.__file__).parent
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
LOADERS = {"load", "loads", "Unpickler"}


def faults(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in UNPICKLERS:
            yield from (f"{node.module}.{one.name}" for one in node.names if one.name in LOADERS)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        module, _, name = called.rpartition(".")
        if module in UNPICKLERS and name in LOADERS:
            yield called
        if called.endswith("torch.load") and not any(
            word.arg == "weights_only" and ast.unparse(word.value) == "True"
            for word in node.keywords
        ):
            yield f"{called} without weights_only"
        if name.endswith(("_object", "_object_list", "_objects")):
            yield called  # torch's collectives of objects pickle them


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda p: p.name)
def test_no_module_of_the_runtime_unpickles(path: Path) -> None:
    assert list(faults(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(data)",
        "from pickle import loads",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "dist.broadcast_object_list(found)",
    ],
)
def test_what_is_looked_for_is_found(line: str) -> None:
    assert list(faults(line))
