"""A job in this project's own TOML: [job] and [model].

In: plain values. Out: `Account`. DESIGN "Outside contract". A key that is not known is an error,
as in all files of this project.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import known
from nonuniform.perf.hardware import PRECISIONS
from nonuniform.planner.jobs.account import Account, Word
from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.given import Given, Notebook

COUNTS = (
    *(
        "gpus",
        "nodes",
        "gpus_per_node",
        "domain",
        "tensor",
        "pipeline",
        "context",
        "expert",
        "data",
    ),
    *("interleave", "micro_batch", "accumulation", "sequences", "length", "steps"),
    *("checkpoint_every_steps", "zero"),
)
NUMBERS = ("tokens", "days")
SWITCHES = (
    *("sequence_parallel", "overlap_tensor", "overlap_data", "overlap_pipeline"),
    *("preemptible", "requeue"),
)
CHOICES = {"precision": PRECISIONS, "recompute": ("none", "selective", "full")}
JOB = ("name", *COUNTS, *NUMBERS, *SWITCHES, *CHOICES)
MODEL_COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "window"),
    *("experts", "experts_per_token"),
)
MODEL = ("name", *MODEL_COUNTS, "gated", "tied")


def is_plain(values: Mapping[str, Any]) -> bool:
    return set(values) <= {"job", "model"} and isinstance(values.get("job"), dict)


def account(path: str, values: Mapping[str, Any], book: Notebook) -> Account:
    job, model = values["job"], values.get("model", {})
    if not isinstance(model, dict):
        raise BadInput(f"{path}: [model]: must be a table")
    _check_keys(path, "job", job, JOB)
    _check_keys(path, "model", model, MODEL)
    for key, value in job.items():
        _one(book, _given("job", key, value))
    if book.said.get("zero", Word(0, "")).whole > 3:
        raise BadInput(f"{path}: [job] zero = {book.said['zero'].value}: known are 0, 1, 2, 3")
    name = _model(path, model, book)
    return Account(path, "toml", "this format", book.said, model_name=name)


def _given(section: str, key: str, value: object) -> Given:
    return Given(key, value, f"[{section}] {key}", key)


def _one(book: Notebook, given: Given) -> None:
    key = given.name
    if key in COUNTS or key in MODEL_COUNTS:
        book.count(key, given)
    elif key in NUMBERS:
        book.number(key, given)
    elif key in SWITCHES or key in ("gated", "tied"):
        if not isinstance(given.value, bool):
            raise BadInput(f"{book.path}: {given.note} = {given.value!r}: must be true or false")
        book.put(key, given.value, given)
    elif key in CHOICES:
        if given.value not in CHOICES[key]:
            choices = ", ".join(CHOICES[key])
            raise BadInput(f"{book.path}: {given.note} = {given.value!r}: known are {choices}")
        book.put(key, str(given.value), given)
    else:
        book.put("name", shown(str(given.value)), given)


def _model(path: str, table: Mapping[str, Any], book: Notebook) -> str:
    if set(table) == {"name"}:
        name = str(table["name"])
        if name not in known("models"):
            own = Path(path).parent / name if name.endswith(".toml") else None
            if own is None or not own.is_file():
                names = ", ".join(known("models"))
                raise BadInput(f"{path}: [model] name = {shown(name, 60)!r}: known are {names}")
            name = str(own)
        book.said["model"] = Word(name, "[model] name")
        return name
    for key, value in table.items():
        if key != "name":
            _one(book, _given("model", key, value))
    return ""


def _check_keys(path: str, section: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            more = f", did you mean {near[0]}?" if near else f", known are {', '.join(keys)}"
            raise BadInput(f"{path}: [{section}] unknown key {shown(key, 60)}{more}")
