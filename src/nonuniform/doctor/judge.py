"""From measured values to findings: pure functions, one per check.

The limits stand here with their reasons. Sizes are in GiB, times in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from nonuniform.doctor.verdict import Check, Status

OLDEST_TORCH = (2, 13)

# A process of a CPU run needs about this much, and the smallest run with a failure in it has two
# replicas of two GPUs.
PROCESS_GIB = 0.25
SMALLEST_RUN_PROCESSES = 4
DEMO_PROCESSES = 8

# Every generation opens new groups while the old ones are still being dropped, and a group keeps a
# socket per peer.
OPEN_FILES_MIN = 256
OPEN_FILES_GOOD = 1024

PORTS_PROBED = 64
LOG_GIB, RUN_GIB = 0.1, 1.0
SHARED_MEMORY_GIB = 1.0
SLOW_ROUND_TRIP_S = 0.1


def judge_platform(system: str, python: str) -> Check:
    found = f"{system}, Python {python}"
    if system == "Linux":
        return Check("platform", Status.OK, found)
    return Check("platform", Status.WARN, found, "only Linux is tested")


def judge_packages(versions: dict[str, str | None]) -> Check:
    """The packages that the planning core needs."""
    found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        advice = f"pip install {' '.join(missing)}"
        return Check("packages", Status.FAIL, found, advice)
    return Check("packages", Status.OK, found)


def judge_torch(version: str | None, problem: str = "") -> Check:
    """`problem` is why an installed torch cannot be imported."""
    install = "from a checkout: pip install '.[train]'"
    if version is None:
        return Check("torch", Status.WARN, "not installed: planning only", install)
    if problem:
        return Check("torch", Status.FAIL, f"{version} cannot be imported: {problem}", install)
    if _release(version) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return Check("torch", Status.WARN, version, f"older than any tested one: torch>={oldest}")
    return Check("torch", Status.OK, version)


def _release(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("+")[0].split(".")[:2]:
        digits = "".join(character for character in part if character.isdigit())
        numbers.append(int(digits or 0))
    return tuple(numbers)


def judge_picture(version: str | None) -> Check:
    if version is None:
        advice = "from a checkout: pip install '.[report]', for the picture that the demo draws"
        return Check("matplotlib", Status.WARN, "not installed", advice)
    return Check("matplotlib", Status.OK, version)


def judge_cores(cores: float) -> Check:
    found = f"{cores:g} usable"
    if cores < 2:
        advice = "every GPU of a CPU run is a process: expect them to take turns"
        return Check("cores", Status.WARN, found, advice)
    return Check("cores", Status.OK, found)


def judge_memory(available_gib: float) -> Check:
    processes = int(available_gib / PROCESS_GIB)
    found = f"{available_gib:.1f} GiB available, about {processes} small CPU processes"
    if processes < SMALLEST_RUN_PROCESSES:
        advice = f"a run with a failure in it needs {SMALLEST_RUN_PROCESSES} of them: free memory"
        return Check("memory", Status.FAIL, found, advice)
    if processes < DEMO_PROCESSES:
        advice = f"use fewer than {DEMO_PROCESSES} GPUs in a CPU run, or free memory"
        return Check("memory", Status.WARN, found, advice)
    return Check("memory", Status.OK, found)


def judge_gpus(seen_by_driver: int, seen_by_torch: Sequence[str]) -> Check:
    """`seen_by_torch` describes each GPU, `seen_by_driver` counts the device files."""
    if seen_by_torch:
        return Check("gpus", Status.OK, "; ".join(seen_by_torch))
    if seen_by_driver:
        found = f"{seen_by_driver} on this machine, none seen by torch"
        advice = "install a CUDA build of torch that fits the driver; check CUDA_VISIBLE_DEVICES"
        return Check("gpus", Status.WARN, found, advice)
    return Check("gpus", Status.OK, "none: runs use the CPU")


def judge_round_trip(backend: str, seconds: float | None, problem: str = "") -> Check:
    """`seconds` for one small all-reduce, None if there was none and `problem` says why."""
    if seconds is None:
        return Check(f"{backend} round trip", Status.FAIL, problem, _ROUND_TRIP_ADVICE[backend])
    found = f"{seconds * 1e3:.2f} ms for a small all-reduce"
    if seconds > SLOW_ROUND_TRIP_S:
        advice = "the machine is busy or throttled: steps will be slow"
        return Check(f"{backend} round trip", Status.WARN, found, advice)
    return Check(f"{backend} round trip", Status.OK, found)


_ROUND_TRIP_ADVICE = {
    "gloo": "let processes connect on 127.0.0.1: is `lo` up, does a firewall or sandbox block it?",
    "nccl": "run again with NCCL_DEBUG=INFO; check driver, /dev/shm and that no GPU is in use",
}


def judge_open_files(limit: int) -> Check:
    found = f"{limit:,} allowed"
    if limit < OPEN_FILES_MIN:
        return Check("open files", Status.FAIL, found, f"ulimit -n {OPEN_FILES_GOOD}")
    if limit < OPEN_FILES_GOOD:
        advice = f"ulimit -n {OPEN_FILES_GOOD}: each failure opens sockets before it closes others"
        return Check("open files", Status.WARN, found, advice)
    return Check("open files", Status.OK, found)


def judge_ports(free: int, wanted: int = PORTS_PROBED, problem: str = "") -> Check:
    found = f"{free} of {wanted} could be opened on 127.0.0.1"
    if free == wanted:
        return Check("loopback ports", Status.OK, found)
    if free == 0:
        advice = "a run listens on 127.0.0.1 unless [run] address says otherwise"
        return Check("loopback ports", Status.FAIL, f"{found}: {problem}", advice)
    advice = "close programs with many connections, or widen net.ipv4.ip_local_port_range"
    return Check("loopback ports", Status.WARN, f"{found}: {problem}", advice)


def judge_disk(free_gib: float | None, folder: str) -> Check:
    if free_gib is None:
        found = f"the free space of {folder} cannot be read"
        return Check("disk", Status.WARN, found, "does the folder exist? give --out elsewhere")
    found = f"{free_gib:.1f} GiB free in {folder}"
    if free_gib < LOG_GIB:
        return Check("disk", Status.FAIL, found, "logs will not fit: free space or change folder")
    if free_gib < RUN_GIB:
        return Check("disk", Status.WARN, found, "long runs may fill it: give --out elsewhere")
    return Check("disk", Status.OK, found)


def judge_shared_memory(total_gib: float | None, has_gpus: bool) -> Check:
    """NCCL moves data between the GPUs of a host through /dev/shm; gloo does not use it."""
    found = "absent" if total_gib is None else f"{total_gib:.2f} GiB"
    if not has_gpus:
        return Check("/dev/shm", Status.OK, f"{found}, not needed without GPUs")
    if total_gib is None:
        return Check("/dev/shm", Status.FAIL, found, "mount a tmpfs there for NCCL")
    if total_gib < SHARED_MEMORY_GIB:
        advice = f"NCCL wants more: docker run --shm-size={SHARED_MEMORY_GIB:g}g, or --ipc=host"
        return Check("/dev/shm", Status.WARN, found, advice)
    return Check("/dev/shm", Status.OK, found)
