"""How long the step-time model itself takes.

    python bench/perf.py [--search 100000]

Prints microseconds for a configuration asked for the first time (nothing remembered of it), for one
whose layer was seen before as in a search, for its memory, and seconds for a search.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

from nonuniform.perf.catalog import load_machine, load_model
from nonuniform.perf.layer import layer_time, vocab_time
from nonuniform.perf.memory_training import training_bytes
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.search import search, spreads
from nonuniform.perf.step_time import step_time

SPREAD = Parallel(tensor=8, pipeline=8, data=16, interleave=5, precision="fp8")
WORK = Work(load_model("llama3_70b"), 2048, 8192)


def per_call_us(call: Callable[[], object], calls: int, before: Callable[[], None]) -> float:
    """The median of single calls, without `before`."""
    times = []
    for _ in range(calls):
        before()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def forget() -> None:
    layer_time.cache_clear()
    vocab_time.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search", type=int, default=100_000, help="configurations to search")
    wanted = parser.parse_args().search
    machine = load_machine("gb200_nvl72")
    step_time(machine, WORK, SPREAD)
    first = per_call_us(lambda: step_time(machine, WORK, SPREAD), 2000, forget)
    again = per_call_us(lambda: step_time(machine, WORK, SPREAD), 2000, lambda: None)
    memory = per_call_us(lambda: training_bytes(machine, WORK, SPREAD), 2000, lambda: None)
    print(f"one configuration: {first:.1f} us new, {again:.1f} us with its layer known")
    print(f"its memory:        {memory:.1f} us")
    found = itertools.chain.from_iterable(
        spreads(machine, WORK, gpus, SPREAD) for gpus in itertools.count(8, 8)
    )
    candidates = list(itertools.islice(found, wanted))
    forget()
    start = time.perf_counter()
    answer = search(machine, WORK, candidates)
    took = time.perf_counter() - start
    ran = answer.examined - sum(answer.refused.values())
    print(f"search: {answer.examined} configurations in {took:.1f} s, {ran} of them could run")


if __name__ == "__main__":
    main()
