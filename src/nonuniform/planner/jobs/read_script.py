"""A launch script: which of its commands starts the training, and with what.

In: text of a shell script, or a bare list of arguments. Out: `Account`. DESIGN "Outside
contract". Knows of each program only which arguments give it away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.planner.jobs import huggingface, megatron
from nonuniform.planner.jobs.account import Account
from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.given import Given, Notebook, of_command
from nonuniform.planner.jobs.huggingface_files import Table, tables_of
from nonuniform.planner.jobs.launch import read_launch
from nonuniform.planner.jobs.shell import Command, Script, arguments, directives, follow
from nonuniform.planner.jobs.shell.slurm import named, variables
from nonuniform.planner.jobs.source import parse_json, read_text

LEAST = 2  # arguments that give a program away
HUGGING = frozenset(key.replace("_", "-") for key in huggingface.TRAINING) | {"deepspeed"}


def read_script(path: Path, text: str, environment: Mapping[str, str]) -> Account:
    slurm = directives(text)
    script = follow(str(path), text, environment, variables(slurm))
    book = Notebook(str(path))
    command = _training(book, path, script)
    words = arguments(command.words)
    if any(field.text.endswith("srun") for field in command.words[:3]):
        words = named(words)
    items = [_doubted(item, command) for item in of_command(words)]
    book.unknown += _not_followed(command)
    mine = read_launch(book, items, of_command(slurm))
    book.unknown += script.unread
    for name, value in script.outside.items():
        book.notes.append((f"${name}", shown(value, 60), "from the environment"))
    _title(book, of_command(slurm))
    if _hits(items, megatron.SIGNS) >= _hits(items, HUGGING):
        return megatron.account(str(path), "megatron", items, book, mine)
    return _hugging(path, items, book, mine)


def _training(book: Notebook, path: Path, script: Script) -> Command:
    """The command with most of the arguments that give a program away."""
    scores = [(_score(command), command) for command in script.commands]
    able = [(score, command) for score, command in scores if score >= LEAST]
    bare = _bare(script.commands)
    if bare is not None and not able:
        able = [(_score(bare), bare)]
    if able:
        best = max(score for score, _ in able)
        chosen = next(command for score, command in reversed(able) if score == best)
        if len(able) > 1:
            text = f"of line {chosen.line}"
            why = f"the one with most arguments of {len(able)} that start a training"
            book.notes.append(("command", text, why))
        return chosen
    held = _held(script)
    if _score(held) >= LEAST:
        text = "no command of the file shows them: taken from its variables"
        return replace(held, doubt=text)
    raise BadInput(
        f"{path}: no command of it has arguments of Megatron-LM (--num-layers, "
        "--tensor-model-parallel-size) or of Transformers (--per_device_train_batch_size)"
    )


def _score(command: Command) -> int:
    items = of_command(arguments(command.words))
    return max(_hits(items, megatron.SIGNS), _hits(items, HUGGING))


def _hits(items: Sequence[Given], names: frozenset[str]) -> int:
    return sum(item.name in names for item in items)


def _bare(commands: Sequence[Command]) -> Command | None:
    """A file that holds nothing but arguments, on one line each or on several."""
    lines = [command for command in commands if command.words[0].text.startswith("--")]
    if not lines or len(lines) < len(commands):
        return None
    words = tuple(word for command in lines for word in command.words)
    return Command(words, lines[0].line)


def _held(script: Script) -> Command:
    """Arguments in variables: for scripts that hand them on in a way that was not followed."""
    words = [
        word
        for fields in script.held.values()
        if any(re.match(r"\s*--[A-Za-z]", field.text) for field in fields)
        for field in fields
        for word in (field.words() if not field.missing else [field])
    ]
    return Command(tuple(words), words[0].line if words else 0)


def _not_followed(command: Command) -> list[str]:
    """Words that may be any number of arguments: `"$@"`, `$(cat more)`, a variable not set."""
    values = {id(item.values[0]) for item in arguments(command.words) if item.values}
    return [
        f"{shown(word.text, 80)} (line {word.line}: what it holds is not known)"
        for word in command.words[1:]
        if word.missing and word.text.startswith("$") and id(word) not in values
    ]


def _doubted(item: Given, command: Command) -> Given:
    return replace(item, doubt=item.doubt or command.doubt) if command.doubt else item


def _title(book: Notebook, slurm: Sequence[Given]) -> None:
    for item in slurm:
        if item.name == "job-name" and str(item.value).strip():
            book.put("name", shown(str(item.value)), item)


def _hugging(path: Path, items: Sequence[Given], book: Notebook, mine: set[str]) -> Account:
    """Transformers' arguments in a script; its DeepSpeed file is looked up beside it."""
    values = {item.name.replace("-", "_"): item for item in items if item.name not in mine}
    values = {key: replace(item, name=key) for key, item in values.items()}
    tables = {"training": Table(path.name, values)}
    named_file = values.get("deepspeed") or values.get("deepspeed_config")
    if named_file is not None and not named_file.missing and str(named_file.value).strip():
        name = str(named_file.value)
        for file in (path.parent / name, path.parent / Path(name).name):
            if len(name) < 1000 and file.is_file():
                found = tables_of(file, parse_json(file, read_text(file)))
                tables |= {role: table for role, table in found.items() if role == "deepspeed"}
                break
        else:
            book.leave(named_file, "no such file")
    return huggingface.account(str(path), tables, book)
