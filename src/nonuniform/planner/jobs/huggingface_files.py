"""Which of the JSON files around a job are its TrainingArguments, its DeepSpeed and its model.

In: a file or a folder. Out: a `Table` for each kind that was found. Files are told by their keys;
a file that another one names is looked up beside it. DESIGN "Outside contract". Does not know
what keys mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.source import parse_json, parse_yaml, read_text

SIGNS = {
    "training": (
        "per_device_train_batch_size",
        "gradient_checkpointing",
        "num_train_epochs",
        "max_steps",
    ),
    "deepspeed": ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"),
    "config": ("num_hidden_layers", "n_layer", "num_attention_heads", "n_head"),
    "accelerate": ("num_processes", "num_machines", "compute_environment"),
}
MOST_FILES = 40


@dataclass(frozen=True)
class Table:
    """`file`: its name, for notes."""

    file: str
    values: Mapping[str, Any]


def tables_of(path: Path, values: Mapping[str, Any]) -> dict[str, Table]:
    """Kinds of tables in one file, which may hold several."""
    found: dict[str, Table] = {}
    for table in _tables(values, 2):
        role = _role(table)
        if role and role not in found:
            found[role] = Table(path.name, table)
    return found


def around(path: Path, values: Mapping[str, Any]) -> dict[str, Table]:
    """Those of a file, of the files that it names, and of a config.json beside it."""
    found = tables_of(path, values)
    if not found:
        return {}
    training = found.get("training")
    if training is not None and "deepspeed" not in found:
        named = training.values.get("deepspeed")
        if isinstance(named, str) and named:
            found |= {k: v for k, v in _named(path, named).items() if k == "deepspeed"}
    for extra in _beside(path, training):
        read = tables_of(extra, parse_json(extra, read_text(extra)))
        for role, table in read.items():
            found.setdefault(role, table)
    return found


def of_folder(folder: Path) -> dict[str, Table]:
    """Of all JSON and YAML files of a folder. Two of one kind are refused: which one counts?"""
    files = sorted(
        f for f in folder.iterdir() if f.suffix in (".json", ".yaml", ".yml") and f.is_file()
    )
    if len(files) > MOST_FILES:
        raise BadInput(f"{folder}: holds {len(files)} files, too many to look for a job in")
    found: dict[str, Table] = {}
    for file in files:
        text = read_text(file)
        values = parse_json(file, text) if file.suffix == ".json" else parse_yaml(file, text)
        for role, table in tables_of(file, values).items():
            if role in found:
                raise BadInput(
                    f"{folder}: {found[role].file} and {file.name} both look like {role}: name one "
                    "of them instead of the folder"
                )
            found[role] = table
    return found


def _tables(values: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    yield values
    if depth:
        for value in values.values():
            if isinstance(value, dict):
                yield from _tables(value, depth - 1)


def _role(values: Mapping[str, Any]) -> str:
    hits = {role: sum(sign in values for sign in signs) for role, signs in SIGNS.items()}
    best = max(hits, key=lambda role: hits[role])
    return best if hits[best] else ""


def _named(path: Path, name: str) -> dict[str, Table]:
    """A file that another one names: as it is written, or by its name beside."""
    if len(name) > 1000 or "\0" in name:
        raise BadInput(f"{path}: deepspeed = {shown(name, 40)!r}: no such file")
    for file in (path.parent / name, path.parent / Path(name).name):
        if file.is_file():
            return tables_of(file, parse_json(file, read_text(file)))
    raise BadInput(f"{path}: deepspeed = {shown(name, 80)!r}: no such file, nor one beside it")


def _beside(path: Path, training: Table | None) -> list[Path]:
    """Where the model may be described."""
    folders = [path.parent]
    model = training.values.get("model_name_or_path") if training is not None else None
    if isinstance(model, str) and 0 < len(model) < 1000 and "\0" not in model:
        folders.insert(0, path.parent / model)
    files = [folder / "config.json" for folder in folders]
    return [file for file in files if file != path and file.is_file()]
