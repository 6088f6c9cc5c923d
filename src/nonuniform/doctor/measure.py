"""Looks at this machine; decides nothing. What cannot be read is None, never an exception.

Does not import torch: what only torch knows is asked of `nonuniform.train.probe`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import resource
import shutil
import socket
from pathlib import Path

GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")


def package_versions(names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: package_version(name) for name in names}


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except Exception:  # not installed, or with metadata that is broken in one way or another
        return None


def usable_cores() -> float:
    """Cores that this process may use: its affinity, cut by the container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota = _words(_CGROUP / "cpu.max")
    if len(quota) == 2 and quota[0].isdecimal() and quota[1].isdecimal() and int(quota[1]) > 0:
        cores = min(cores, int(quota[0]) / int(quota[1]))
    return cores


def available_memory_gib() -> float | None:
    """Memory that new processes can have: of the machine, and of the container if it is capped."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    if found is None:
        return None
    available = int(found[1]) * 1024
    cap, used = _text(_CGROUP / "memory.max").strip(), _text(_CGROUP / "memory.current").strip()
    if cap.isdigit() and used.isdigit():
        available = min(available, int(cap) - int(used))
    return max(0, available) / GIB


def gpu_device_files() -> int:
    try:
        return sum(1 for name in os.listdir("/dev") if re.fullmatch(r"nvidia[0-9]+", name))
    except OSError:
        return 0


def open_file_limit() -> int:
    """The soft limit: it is the one that the processes of a run inherit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def loopback_ports(wanted: int) -> tuple[int, str]:
    """How many of `wanted` listening sockets could be open at once, and what stopped the next."""
    with contextlib.ExitStack() as stack:
        for opened in range(wanted):
            try:
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                listener.bind(("127.0.0.1", 0))
                listener.listen(1)
            except OSError as error:
                return opened, error.strerror or str(error)
    return wanted, ""


def current_folder() -> Path:
    """As an absolute path, unless somebody has removed it."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def free_disk_gib(folder: Path) -> float | None:
    try:
        return shutil.disk_usage(folder).free / GIB
    except OSError:
        return None


def shared_memory_gib(path: Path = Path("/dev/shm")) -> float | None:
    try:
        return shutil.disk_usage(path).total / GIB
    except OSError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()
