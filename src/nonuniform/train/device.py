"""Which device a process works on: a GPU of its own, or the CPU. Untested on GPUs.

In: the job's wish, how many GPUs this machine has. Out: "cuda" or "cpu", decided once before
launch, and the device of each process. Knows nothing of several hosts.
"""

from __future__ import annotations

import os

import torch

from nonuniform.config import JobConfig
from nonuniform.errors import BadInput


def decide_device(job: JobConfig, cuda_devices: int) -> str:
    """`auto` takes GPUs only if there is one for every process."""
    needed = job.parallel.replicas * job.parallel.degree + job.parallel.spares
    if job.run.device == "cpu" or (job.run.device == "auto" and cuda_devices < needed):
        return "cpu"
    if cuda_devices < needed:
        raise BadInput(
            f'[run] device = "cuda": {job.parallel.replicas} replicas of degree '
            f"{job.parallel.degree} and {job.parallel.spares} spares need {needed} GPUs, "
            f"this machine has {cuda_devices}"
        )
    return "cuda"


def take_device(decided: str, job: JobConfig, gpu: str) -> torch.device:
    """The device of the process that plays `gpu` = "R/I"."""
    if decided == "cpu":
        return torch.device("cpu")
    # A dead peer must not take this process with it: the alarm aborts its groups instead.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    replica, index = map(int, gpu.split("/"))
    device = torch.device("cuda", replica * job.parallel.degree + index)
    torch.cuda.set_device(device)
    return device
