"""Before a run starts: does what a rank must hold at `min_degree` fit into what the machine has?

In: the job, its plan, the kind of device. Out: nothing, or BadInput with both numbers. DESIGN
"Generations". Knows nothing of how the estimate is made.
"""

from __future__ import annotations

import os

import torch

from nonuniform.config import JobConfig
from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan
from nonuniform.perf.memory import MemoryJob, check_memory
from nonuniform.train.session import DTYPES

PROCESS_BYTES = 170 * 10**6  # Python and torch in a forked process, without what it shares


def available_bytes(device: str, processes: int) -> int:
    """For one rank: a GPU of its own, or its part of this machine's free memory."""
    if device == "cuda":
        return min(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    return max(0, _free_bytes() // processes - PROCESS_BYTES)


def _free_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_fit(job: JobConfig, plan: ModelPlan, device: str) -> None:
    """BadInput where a rank would not fit at `min_degree`."""
    parallel = job.parallel
    asked = MemoryJob(
        replicas=parallel.replicas,
        sequences=job.batch.sequences,
        length=job.batch.length,
        accumulation=job.batch.accumulation,
        bytes_per_element=DTYPES[job.run.dtype].itemsize,
        snapshot=device == "cpu" and (job.checkpoint.every > 0 or job.checkpoint.final),
    )
    processes = parallel.replicas * parallel.degree + parallel.spares
    complaint = check_memory(plan, asked, available_bytes(device, processes))
    if complaint is not None:
        raise BadInput(complaint)
