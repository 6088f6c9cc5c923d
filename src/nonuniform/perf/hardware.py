"""GPUs, the networks between them, and the constants that make an ideal machine a real one.

In: values (catalog.py reads them from files). Out: `Machine`, with the rates it sustains.
DESIGN "Step time". Does not know: models, or how a job is spread.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from nonuniform.errors import BadInput

PRECISIONS = ("bf16", "fp8", "mxfp8")
HOP_NEAR_S = 2e-6  # latency of a hop inside a domain
HOP_FAR_S = 8e-6  # and between domains
FLASH_LENGTH = 8192  # of the sequences with which fused attention was measured
FLASH_FILL = 600  # keys more that a query seems to see: tiles on the diagonal, start and end


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU, as its vendor describes it.

    `best_*_tflops`: the best that anybody measured of a matrix product. It is below the peak
    since the clock falls under load. `best_attention_tflops` the same of fused causal attention,
    forward, in BF16, over `FLASH_LENGTH` tokens. 0: nobody did, see `machine`.
    """

    name: str
    generation: str
    bf16_tflops: float
    hbm_gb: float
    hbm_tb_per_s: float
    nvlink_gb_per_s: float
    domain_gpus: int
    nic_gb_per_s: float
    clock_mhz: float
    power_w: float
    source: str
    fp8_tflops: float = 0.0
    best_bf16_tflops: float = 0.0
    best_fp8_tflops: float = 0.0
    best_attention_tflops: float = 0.0


@dataclass(frozen=True)
class Constants:
    """What is fitted, per generation of GPUs. At most eight, each with a physical meaning.

    Of a matrix product: `gemm_share` of the best measured rate when it is large; `gemm_fill` steps
    along k that each output tile loses to fill its pipeline. `memory_share` of the memory's rate in
    kernels that move data only. `link_share` and `nic_share` of the rates of NVLink and of
    network cards. `launch_s`: between two kernels. `hidden_share`: of a collective that runs
    beside computation, the share that costs nothing. `flash_share` of the best measured rate of
    fused attention.
    """

    gemm_share: float
    gemm_fill: float
    memory_share: float
    link_share: float
    nic_share: float
    launch_s: float
    hidden_share: float
    flash_share: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            share = field.name.endswith("_share")
            if value < 0 or (share and value == 0 and field.name != "hidden_share"):
                raise BadInput(f"constant {field.name} = {value}: must be above 0")


BEST_OF_PEAK = 0.78  # where nobody measured: as of those that were measured
FLASH_OF_BEST = 0.8  # and fused attention of a matrix product


@dataclass(frozen=True, eq=False)
class Machine:
    """A GPU in its domain and network, with the rates it sustains. Compared by identity.

    `clock`: of the compute units, against the nominal set point; memory and networks do not
    follow it.
    """

    gpu: Gpu
    constants: Constants
    clock: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    nic_bytes_per_s: float
    flops_per_s: dict[str, float]
    flash_flops_per_s: float  # of fused attention, if no key were seen in vain
    step_s: dict[str, float]  # of one element of the output, one step along k
    fill: float
    launch_s: float
    hidden_share: float

    @property
    def domain_gpus(self) -> int:
        return self.gpu.domain_gpus

    @property
    def memory_bytes(self) -> float:
        return self.gpu.hbm_gb * 1e9


def machine(gpu: Gpu, constants: Constants, clock: float = 1.0) -> Machine:
    if not clock > 0:
        raise BadInput(f"clock = {clock}: must be above 0")
    best = {
        "bf16": gpu.best_bf16_tflops or BEST_OF_PEAK * gpu.bf16_tflops,
        "fp8": gpu.best_fp8_tflops or BEST_OF_PEAK * gpu.fp8_tflops,
    }
    best["mxfp8"] = best["fp8"]
    flash = gpu.best_attention_tflops or FLASH_OF_BEST * best["bf16"]
    flash *= 1 + FLASH_FILL / (FLASH_LENGTH / 2)
    flops = {key: value * 1e12 * constants.gemm_share * clock for key, value in best.items()}
    return Machine(
        gpu=gpu,
        constants=constants,
        clock=clock,
        memory_bytes_per_s=gpu.hbm_tb_per_s * 1e12 * constants.memory_share,
        link_bytes_per_s=gpu.nvlink_gb_per_s * 1e9 * constants.link_share,
        nic_bytes_per_s=gpu.nic_gb_per_s * 1e9 * constants.nic_share,
        flops_per_s=flops,
        flash_flops_per_s=flash * 1e12 * constants.flash_share * clock,
        step_s={key: 2 / value if value else float("inf") for key, value in flops.items()},
        fill=constants.gemm_fill,
        launch_s=constants.launch_s,
        hidden_share=constants.hidden_share,
    )


def at_clock(base: Machine, clock: float) -> Machine:
    """The same machine at another clock."""
    return machine(base.gpu, base.constants, clock)


def with_network(gpu: Gpu, nic_gb_per_s: float, domain_gpus: int | None = None) -> Gpu:
    """The same GPU in another cluster."""
    return replace(gpu, nic_gb_per_s=nic_gb_per_s, domain_gpus=domain_gpus or gpu.domain_gpus)
