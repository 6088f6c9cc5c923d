"""`#SBATCH` lines of a script.

In: text. Out: the options as `Argument`s, and the variables that Slurm sets from them. DESIGN
"Outside contract". Knows nothing of the program that is started.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from nonuniform.planner.jobs.shell.arguments import Argument, arguments
from nonuniform.planner.jobs.shell.expand import Field

_LINE = re.compile(r"^#SBATCH[ \t]+(.*)$")
_SHORT = {
    "N": "nodes",
    "n": "ntasks",
    "t": "time",
    "J": "job-name",
    "p": "partition",
    "q": "qos",
    "G": "gpus",
}
_SETS = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus-per-node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks": ("SLURM_NTASKS",),
    "job-name": ("SLURM_JOB_NAME",),
}


def directives(text: str) -> list[Argument]:
    found: list[Argument] = []
    for number, line in enumerate(text.split("\n"), start=1):
        match = _LINE.match(line)
        if match is None:
            continue
        found += named(arguments([Field(word, number) for word in _words(match[1])]))
    return found


def named(options: list[Argument]) -> list[Argument]:
    """Short options by their long names; GPUs of a node from --gres."""
    done: list[Argument] = []
    for option in options:
        name = _SHORT.get(option.name, option.name)
        values = option.values
        if (
            option.name[:1] in _SHORT
            and len(option.name) > 1
            and not option.spelled.startswith("--")
        ):
            name, values = _SHORT[option.name[:1]], (Field(option.name[1:], option.line),)
        if name == "gres" and option.value.startswith("gpu"):
            name = "gpus-per-node"
        if name in ("gpus-per-node", "gpus") and values:
            values = (Field(_count(values[0].text), option.line, values[0].missing),)
        done.append(replace(option, name=name, values=values))
    return done


def variables(options: list[Argument]) -> dict[str, str]:
    """What Slurm would tell the script."""
    told = {o.name: o.value for o in options if o.value and not o.missing}
    if "ntasks" not in told and told.get("nodes", "").isdigit():
        per_node = told.get("ntasks-per-node", "")
        if per_node.isdigit() and len(per_node) < 6 and len(told["nodes"]) < 9:
            told["ntasks"] = str(int(told["nodes"]) * int(per_node))
    return {name: told[key] for key, names in _SETS.items() if key in told for name in names}


def limit_days(text: str) -> float | None:
    """--time as Slurm writes it: minutes, minutes:seconds, h:m:s, days-h, days-h:m, days-h:m:s."""
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,7}))?(?::(\d{1,7}))?", text.strip())
    if match is None:
        return None
    days, *clock = match.groups()
    numbers = [int(part) for part in clock if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    whole = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return whole / 86400 or None


def _count(text: str) -> str:
    """gpu:h100:8 and h100:8 mean 8; gpu alone means 1."""
    last = text.split(",")[0].split("(")[0].split(":")[-1]
    return "1" if last == "gpu" else last


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
