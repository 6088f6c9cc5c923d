"""How long a matrix product takes: a roofline whose efficiency depends on the size.

In: the machine and m, n, k. Out: seconds. Its output is cut into tiles, one per
multiprocessor and wave; each runs k steps and loses `gemm_fill` more to fill its pipeline. Memory
is read and written meanwhile; the slower of the two counts. Does not know: which tile a library
would choose, nor the last wave that is not full: what that costs could not be told from the tables.
"""

from __future__ import annotations

from nonuniform.perf.hardware import Machine


def gemm_s(
    machine: Machine,
    m: float,
    n: float,
    k: float,
    precision: str = "bf16",
    output_bytes: float = 2.0,
) -> float:
    """`output_bytes` per element of m x n, read and written: 8 for sums into FP32."""
    # Waves of tiles times steps of a wave.
    compute_s = m * n * (k + machine.fill) * machine.step_s[precision]
    moved = (2.0 if precision == "bf16" else 1.0) * (m + n) * k + output_bytes * m * n
    memory_s = moved / machine.memory_bytes_per_s
    return (compute_s if compute_s > memory_s else memory_s) + machine.launch_s


def batched_gemm_s(machine: Machine, batch: float, m: float, n: float, k: float) -> float:
    """`batch` products in one kernel: they share the waves."""
    compute_s = batch * m * n * (k + machine.fill) * machine.step_s["bf16"]
    memory_s = 2.0 * batch * ((m + n) * k + m * n) / machine.memory_bytes_per_s
    return max(compute_s, memory_s) + machine.launch_s
