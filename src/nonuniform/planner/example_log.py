"""A failure log to try things with, drawn by the simulator from published rates.

In: a fleet, a catalog of failures, days, a seed. Out: the text of a CSV, as the log reader takes
it. DESIGN "Outside contract". The reader knows no comments, so that the statement of where it is
from stands in the column `made_by` of the first row, with the command; `logs.py` looks for it.

    python -m nonuniform.planner.example_log examples/faults.csv
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import numpy as np

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.sources.generate import generate

MARK = "made by the simulator from published rates"
COMMAND = "python -m nonuniform.planner.example_log"
FLEET = Fleet(16128, 8, 8)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def example_log(
    fleet: Fleet, catalog: str = "llama3", days: float = 90.0, seed: int = 1
) -> str:  # fmt: skip
    """A row for each failure: of one GPU, or with an empty `gpu` of the whole node."""
    trace = generate(fleet, load_catalog(catalog).causes, 24 * days, seed, steady_start=True)
    rows = ["node,gpu,start,end,cause,made_by"]
    statement = (
        f"{MARK}: catalog {catalog}; {fleet.gpus} GPUs; {days:g} days; seed {seed}; {COMMAND}"
    )
    columns = (trace.first_gpu, trace.gpus, trace.start_h, trace.end_h, trace.cause)
    for first, gpus, start_h, end_h, cause in zip(*columns, strict=True):
        node, index = divmod(int(first), fleet.node)
        gpu = str(index) if gpus == 1 else ""
        name = trace.causes[int(cause)]
        times = f"{_time(float(start_h))},{_time(float(np.minimum(end_h, trace.hours)))}"
        rows.append(f"node-{node:05d},{gpu},{times},{name},{statement if len(rows) == 1 else ''}")
    return "\n".join(rows) + "\n"


def _time(hours: float) -> str:
    when = START + datetime.timedelta(seconds=round(hours * 3600))
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def main(path: str) -> None:
    """The file of the examples folder: of the GPUs of examples/jobs/llama3-405b.sh, in DGX H100."""
    text = example_log(FLEET)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["examples/faults.csv"])
