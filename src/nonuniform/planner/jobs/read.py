"""A job's file, whatever program it is for.

In: a path. Out: `ReadJob`: the job, a fact for each thing that was understood, assumed or worked
out, and what was not understood. DESIGN "Outside contract". The format is told by what is in the
file, not by its name alone. Nothing of the file is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.planner.jobs import huggingface, megatron, plain, torchtitan
from nonuniform.planner.jobs.account import Account, Word
from nonuniform.planner.jobs.description import JobDescription
from nonuniform.planner.jobs.fact import Fact, Kind, shown
from nonuniform.planner.jobs.given import Notebook, of_keys
from nonuniform.planner.jobs.huggingface_files import Table, around, of_folder
from nonuniform.planner.jobs.read_script import read_script
from nonuniform.planner.jobs.settle import settle
from nonuniform.planner.jobs.source import flatten, parse_json, parse_toml, parse_yaml, read_text


@dataclass(frozen=True)
class ReadJob:
    """`unknown`: what the file says and nobody here understood. `account`: what it says, for
    `with_gpus`."""

    job: JobDescription
    facts: tuple[Fact, ...]
    unknown: tuple[str, ...]
    format: str
    account: Account = field(repr=False)


def read_job(path: str | Path, environment: Mapping[str, str] | None = None) -> ReadJob:
    """`environment`: variables that a script may use and does not set; none by default, so that a
    file means the same everywhere."""
    where = Path(path)
    account = _account(where, environment or {})
    return _settled(_named(where, account))


def with_gpus(read: ReadJob, gpus: int, why: str, kind: Kind = "stated") -> ReadJob:
    """The same job where its file does not say on how many GPUs it runs, or on others than it
    says: replicas and batch are worked out again and held against each other."""
    if gpus < 1:
        raise BadInput(f"{read.account.path}: gpus = {gpus}: must be at least 1")
    said = dict(read.account.said)
    for key in ("gpus", "nodes", "data"):
        said.pop(key, None)
    said["gpus"] = Word(gpus, why, kind)
    return _settled(replace(read.account, said=said))


def _settled(account: Account) -> ReadJob:
    job, facts = settle(account)
    return ReadJob(job, facts, account.unknown, account.format, account)


def _named(path: Path, account: Account) -> Account:
    """Every job has a name."""
    if "name" in account.said:
        return account
    name = shown(path.resolve().name if path.is_dir() else path.stem) or "job"
    said = {**account.said, "name": Word(name, "the name of the file", "derived")}
    return replace(account, said=said)


def _account(path: Path, environment: Mapping[str, str]) -> Account:
    if path.is_dir():
        tables = of_folder(path)
        if not tables:
            raise BadInput(f"{path}: no file of the folder describes a job")
        return _hugging(path, tables)
    text = read_text(path)
    kind = _kind(path, text)
    if kind == "toml":
        return _toml(path, text)
    if kind == "json":
        values = parse_json(path, text)
        tables = around(path, values)
        if not tables:
            raise _not_a_job(path, "TrainingArguments, config.json or DeepSpeed keys", values)
        return _hugging(path, tables)
    if kind == "yaml":
        return _yaml(path, text)
    return read_script(path, text, environment)


def _kind(path: Path, text: str) -> str:
    ending = path.suffix.lower()
    if ending in (".toml", ".json", ".yaml", ".yml"):
        return "yaml" if ending == ".yml" else ending[1:]
    if text.lstrip()[:1] == "{":
        return "json"
    return "script"


def _hugging(path: Path, tables: Mapping[str, Table]) -> Account:
    book = Notebook(str(path))
    for role, table in tables.items():
        book.notes.append((role, shown(table.file, 60), "read"))
    return huggingface.account(str(path), tables, book)


def _toml(path: Path, text: str) -> Account:
    values = parse_toml(path, text)
    book = Notebook(str(path))
    if plain.is_plain(values):
        return plain.account(str(path), values, book)
    if isinstance(values.get("training"), dict) or isinstance(values.get("parallelism"), dict):
        return torchtitan.account(str(path), flatten(path, values), book)
    raise _not_a_job(path, "[job], or torchtitan's [training] and [parallelism]", values)


def _yaml(path: Path, text: str) -> Account:
    values = parse_yaml(path, text)
    items = of_keys(flatten(path, values))
    book = Notebook(str(path))
    if sum(item.name in megatron.SIGNS for item in items) < 2:
        raise _not_a_job(path, "Megatron-LM's arguments", values)
    mine = megatron.launch_keys(book, items)
    return megatron.account(str(path), "megatron-yaml", items, book, mine)


def _not_a_job(path: Path, wanted: str, values: Mapping[str, object]) -> BadInput:
    found: Sequence[str] = [shown(str(key), 30) for key in values][:5]
    return BadInput(f"{path}: has no {wanted}; it starts with {', '.join(found) or 'nothing'}")
