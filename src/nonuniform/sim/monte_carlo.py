"""Many seeds of the same scenario, on one core, all cores or many machines.

In: a fleet, a source of traces by seed, policies, seeds. Out: per policy the outcomes in the order
of the seeds, the same whatever did the work. DESIGN "Two arrows". All goes through one
`joblib.Parallel`: one job runs in this process, more in processes of their own (loky), and inside
`joblib.parallel_config(backend=...)` on whatever is registered there. Knows nothing of files and
screens: `progress` hears how many seeds are done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.sim.book import book
from nonuniform.sim.engine import Policy, simulate_policies
from nonuniform.sim.outcome import Outcome

Source = Callable[[int], Trace]
OneSeed = dict[str, Outcome]

SEEDS_PER_TASK = 16
"""At most: fewer tasks have less to say to each other, more of them spread better."""


def run(
    fleet: Fleet,
    source: Source,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, list[Outcome]]:
    """`jobs` -1: one for each core. `source` and `policies` go to other processes as they are."""
    if not seeds:
        raise BadInput("[run] no seeds, expected at least one")
    if jobs == 0:
        raise BadInput("[run] jobs = 0, expected 1 or more, or -1 for one on each core")
    for job, options in policies.values():
        # What cannot work is found here and not in another process.
        book(fleet.domains, fleet.domain, job, options)
    jobs = _no_more_than_useful(jobs, len(seeds))
    runs: list[OneSeed] = []
    for part in _in_parallel(_tasks(fleet, source, policies, seeds, jobs), jobs):
        runs += part
        if progress is not None:
            progress(len(runs))
    return {name: [one[name] for one in runs] for name in policies}


def _tasks(
    fleet: Fleet, source: Source, policies: Mapping[str, Policy], seeds: Sequence[int], jobs: int
) -> Iterator[object]:
    workers = _workers(jobs)
    size = max(1, min(SEEDS_PER_TASK, len(seeds) // (4 * workers))) if workers > 1 else 1
    for start in range(0, len(seeds), size):
        yield delayed(_some_seeds)(fleet, source, dict(policies), seeds[start : start + size])


def _workers(jobs: int) -> int:
    return int(get_active_backend()[0].effective_n_jobs(jobs))


def _no_more_than_useful(jobs: int, seeds: int) -> int:
    """Of processes on this machine; other machines know themselves how many they are."""
    if jobs < 1 or type(get_active_backend()[0]).__name__ != "LokyBackend":
        return jobs
    return min(jobs, seeds, os.cpu_count() or 1)


def _in_parallel(tasks: Iterable[object], jobs: int) -> Iterator[list[OneSeed]]:
    """In the order of the tasks, each when it is ready; all at last where a backend can't do so."""
    backend, _ = get_active_backend()
    form = "generator" if backend.supports_return_generator else "list"
    yield from Parallel(n_jobs=jobs, return_as=form)(tasks)


def _some_seeds(
    fleet: Fleet, source: Source, policies: Mapping[str, Policy], seeds: Sequence[int]
) -> list[OneSeed]:
    return [simulate_policies(source(seed), fleet, policies) for seed in seeds]
