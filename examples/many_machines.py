"""`nonuniform simulate` on the workers of a Dask cluster, wherever they are.

    pip install '.[many]'                                           # on every machine
    dask scheduler                                                  # on one of them
    dask worker SCHEDULER:8786                                      # on all of them
    python examples/many_machines.py SCHEDULER:8786 examples/cluster.toml --out runs/cluster

What follows the scheduler's address is what follows `nonuniform simulate`. The seeds go out in
parts, through joblib as they do on one machine; so any backend that registers itself there will do,
Ray by `ray.util.joblib.register_ray()` and the name "ray". The figures are the same to the last
bit, whatever did the work. Without an address, Dask plays a cluster of two workers here.
"""

from __future__ import annotations

import sys

import joblib
from dask.distributed import Client

from nonuniform.cli import main

if __name__ == "__main__":
    addressed = not sys.argv[1].endswith(".toml")
    client = Client(sys.argv[1]) if addressed else Client(n_workers=2, threads_per_worker=1)
    with client, joblib.parallel_config(backend="dask"):
        main(["simulate", *sys.argv[1 + addressed :], "--jobs", "-1"])
