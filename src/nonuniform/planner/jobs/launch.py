"""On how many GPUs a script starts its job: torchrun, Slurm, DeepSpeed, accelerate, mpirun.

In: a launch script that was followed. Out: `nodes`, `gpus_per_node`, `gpus` and what Slurm says
of time, in the notebook. DESIGN "Outside contract". Knows nothing of models or batches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.account import Word
from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.given import Given, Notebook
from nonuniform.planner.jobs.shell.slurm import limit_days

LAUNCHER = {
    "nnodes": "nodes",
    "num-nodes": "nodes",
    "num-machines": "nodes",
    "nodes": "nodes",
    "nproc-per-node": "gpus_per_node",
    "nproc-per-gpu": "gpus_per_node",
    "num-gpus": "gpus_per_node",
    "gpus-per-node": "gpus_per_node",
    "num-processes": "gpus",
    "gpus": "gpus",
    "np": "gpus",
}
# Of a launcher, and of no consequence here.
PASSED = frozenset(
    (
        *("node-rank", "master-addr", "master-port", "rdzv-id", "rdzv-backend"),
        *("rdzv-endpoint", "rdzv-conf", "max-restarts", "tee", "redirects", "log-dir"),
        *("standalone", "module", "m", "u", "machine-rank", "main-process-ip", "main-process-port"),
        *("hostfile", "ntasks", "ntasks-per-node", "label", "container-image"),
        *("container-mounts", "container-name", "container-workdir", "mpi", "kill-on-bad-exit"),
        *("output", "error", "account", "exclusive", "mem", "cpus-per-task", "job-name"),
        *("unbuffered", "no-container-mount-home", "comment", "mail-type", "mail-user"),
        *("open-mode", "signal", "l", "overcommit", "export", "wait", "dependency"),
        *("constraint", "reservation", "array", "cpu-bind"),
    )
)
_TAKEN = re.compile(r"preempt|spot|scaveng|low[-_]?prio|backfill|interruptible", re.IGNORECASE)


def read_launch(book: Notebook, command: Sequence[Given], slurm: Sequence[Given]) -> set[str]:
    """Names of the command's arguments that are the launcher's."""
    mine: set[str] = set()
    for given in command:
        key = LAUNCHER.get(given.name)
        if key is not None:
            _size(book, key, given)
        if key is not None or given.name in PASSED:
            mine.add(given.name)
    for given in slurm:
        if given.name in LAUNCHER:
            _size(book, LAUNCHER[given.name], replace(given, spelled=f"#SBATCH {given.spelled}"))
    _slurm(book, {given.name: given for given in slurm})
    return mine


def _size(book: Notebook, key: str, given: Given) -> None:
    text = str(given.value)
    elastic = re.fullmatch(r"(\d+):(\d+)", text)
    if elastic:
        why = f"from {elastic[1]} to {elastic[2]}: the most"
        given = replace(given, value=elastic[2], doubt=why)
    elif not given.missing and not text.isdigit():
        book.leave(given)  # auto, gpu
        return
    book.count(key, given)


def _slurm(book: Notebook, slurm: dict[str, Given]) -> None:
    if "gpus_per_node" not in book.said and "gpus" not in book.said:
        tasks = slurm.get("ntasks-per-node")
        if tasks is not None and str(tasks.value).isdigit() and tasks.value != "1":
            why = "one GPU for each task"
            book.count("gpus_per_node", replace(tasks, doubt=why))
    if "time" in slurm:
        given = slurm["time"]
        days = limit_days(str(given.value))
        if days is None:
            book.leave(given)
        else:
            book.put("limit_days", days, given)
    if "requeue" in slurm:
        book.put("requeue", True, slurm["requeue"])
    if "segment" in slurm and "gpus_per_node" in book.said:
        _segment(book, slurm["segment"])
    for name in ("partition", "qos"):
        given = slurm.get(name, Given(name, "", "", ""))
        if _TAKEN.search(str(given.value)):
            text = f"{given.note} {shown(str(given.value), 40)}"
            book.said["preemptible"] = Word(True, text, "derived")


def _segment(book: Notebook, given: Given) -> None:
    """Slurm keeps so many nodes of a job together in one block."""
    if not str(given.value).isdigit() or len(str(given.value)) > 6:
        raise BadInput(f"{book.path}: {given.note} = {given.value}: must be a whole number")
    nodes, each = int(str(given.value)), book.said["gpus_per_node"].whole
    if nodes > 0:
        note = f"{given.note} x GPUs of a node = {nodes} x {each}"
        book.derive("domain", nodes * each, note)
