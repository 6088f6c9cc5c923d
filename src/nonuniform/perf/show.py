"""What `nonuniform perf` says: a dict for machines and lines for people.

In: `Config` or `Found`. Out: plain dicts and text. Does not know: where they are printed.
"""

from __future__ import annotations

from typing import Any

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_intervals
from nonuniform.perf.config_file import Config
from nonuniform.perf.hardware import Machine
from nonuniform.perf.memory_training import GB, misfit, training_bytes
from nonuniform.perf.nonuniform import Hurt, hurt_replica, slowdown_band, spans
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.search import Candidate, Found
from nonuniform.perf.step_time import Step, step_time

NOT_MEASURED = (
    "no measurement of an uneven tensor-parallel group was found: slowdowns are the model's own, "
    "the band is what its constants leave open"
)
_SPENT = {
    "gemm_s": "matrix products",
    "attention_s": "attention",
    "memory_s": "moving data",
    "vocab_s": "logits and loss",
    "recompute_s": "recompute",
    "tensor_comm_s": "tensor communication, exposed",
    "context_comm_s": "context communication, exposed",
    "expert_comm_s": "expert communication, exposed",
    "pipeline_comm_s": "pipeline communication, exposed",
    "data_comm_s": "data communication, exposed",
    "bubble_s": "pipeline bubble",
    "optimizer_s": "optimizer",
}


def peak_tflops(machine: Machine, precision: str) -> float:
    return machine.gpu.bf16_tflops if precision == "bf16" else machine.gpu.fp8_tflops


def _mfu(machine: Machine, parallel: Parallel, step: Step) -> float:
    return step.tflops_per_gpu / peak_tflops(machine, parallel.precision)


def perf_json(config: Config) -> dict[str, Any]:
    """Breakdown, rates, memory, hurt replicas."""
    machine, work, parallel = config.machine, config.work, config.parallel
    step = step_time(machine, work, parallel)
    least = min(config.degrees, default=parallel.tensor)
    need = training_bytes(machine, work, parallel, sync_degree=least)
    return {
        "gpu": machine.gpu.name,
        "model": work.model.name,
        "parameters": work.model.parameters,
        "gpus": parallel.gpus,
        "step_s": step.total_s,
        "breakdown": {key: getattr(step, key) for key in _SPENT},
        "model_tflops_per_gpu": step.tflops_per_gpu,
        "mfu": _mfu(machine, parallel, step),
        "tokens_per_s_per_gpu": work.tokens / step.total_s / parallel.gpus,
        "memory_bytes": {**need._asdict(), "total": need.total},
        "memory_available_bytes": machine.memory_bytes,
        "does_not_fit": misfit(machine, need),
        "hurt": [_hurt_json(config, degree) for degree in config.degrees],
        "note": NOT_MEASURED if config.degrees else "",
    }


def _hurt_json(config: Config, degree: int) -> dict[str, Any]:
    machine, work, parallel = config.machine, config.work, config.parallel
    found: Hurt = hurt_replica(machine, work, parallel, degree, config.cut)
    intervals = spans(machine.constants, load_intervals(machine.gpu.generation))
    band = slowdown_band(machine, work, parallel, degree, config.cut, intervals)
    return {
        **found._asdict(),
        "sync": found.sync._asdict(),
        "slowdown_band": {"low": band.low, "high": band.high},
    }


def perf_text(values: dict[str, Any]) -> str:
    """The same for people."""
    step_s = values["step_s"]
    lines = [
        f"{values['model']} ({values['parameters'] / 1e9:.4g} B parameters) on {values['gpus']} x "
        f"{values['gpu']}",
        f"step {step_s:.4g} s, {values['model_tflops_per_gpu']:.4g} TFLOP/s per GPU, MFU "
        f"{values['mfu']:.1%}, {values['tokens_per_s_per_gpu']:,.0f} tokens/s per GPU",
        "",
    ]
    for key, seconds in values["breakdown"].items():
        if seconds > 0:
            lines.append(f"  {_SPENT[key]:32} {seconds:10.4g} s {seconds / step_s:6.1%}")
    need = values["memory_bytes"]
    parts = ", ".join(f"{k} {v / GB:.3g}" for k, v in need.items() if v > 0 and k != "total")
    lines += ["", f"memory {need['total'] / GB:.3g} GB of {_available(values)} ({parts})"]
    if values["does_not_fit"]:
        lines.append(values["does_not_fit"])
    for hurt in values["hurt"]:
        lines.append(_hurt_line(hurt))
    if values["note"]:
        lines.append(values["note"])
    return "\n".join(lines)


def _available(values: dict[str, Any]) -> str:
    return f"{values['memory_available_bytes'] / GB:.3g} GB"


def _hurt_line(hurt: dict[str, Any]) -> str:
    clock = hurt["boost_clock"]
    boost = f"clock x {clock:.3f}" if clock else "no clock is enough"
    band = hurt["slowdown_band"]
    return (
        f"degree {hurt['degree']}: {hurt['slowdown']:.3f} of the time [{band['low']:.3f}, "
        f"{band['high']:.3f}]; keeps up with {hurt['batch_share']:.1%} of a share or {boost}; sync "
        f"moves {hurt['sync']['reshard_bytes'] / GB:.3g} GB from each extra rank, "
        f"{hurt['sync']['exposed_s'] * 1e3:.3g} ms "
        f"exposed against {hurt['healthy_sync_s'] * 1e3:.3g} ms"
    )


def search_json(machine: Machine, work: Work, found: Found) -> dict[str, Any]:
    return {
        "examined": found.examined,
        "refused": found.refused,
        "examples": found.examples,
        "best": [_candidate(machine, work, candidate) for candidate in found.best],
    }


def _candidate(machine: Machine, work: Work, found: Candidate) -> dict[str, Any]:
    p = found.parallel
    return {
        "tensor": p.tensor,
        "pipeline": p.pipeline,
        "data": p.data,
        "context": p.context,
        "expert": p.expert,
        "interleave": p.interleave,
        "micro_batch": p.micro_batch,
        "recompute": p.recompute,
        "step_s": found.step.total_s,
        "mfu": _mfu(machine, p, found.step),
        "tokens_per_s_per_gpu": work.tokens / found.step.total_s / p.gpus,
        "memory_bytes": found.memory_bytes,
    }


def search_text(values: dict[str, Any]) -> str:
    best = values["best"]
    if not best:
        raise BadInput(f"none of {values['examined']} spreads can run: {_reasons(values)}")
    keys = ("tensor", "pipeline", "data", "context", "expert", "interleave", "micro_batch")
    lines = ["  step s    MFU  memory GB  " + " ".join(keys) + " recompute"]
    for entry in best:
        sizes = " ".join(f"{entry[key]:{len(key)}d}" for key in keys)
        lines.append(
            f"{entry['step_s']:8.4g} {entry['mfu']:6.1%} {entry['memory_bytes'] / GB:10.1f}  "
            f"{sizes} {entry['recompute']}"
        )
    lines += ["", f"examined {values['examined']}; refused: {_reasons(values)}"]
    lines += [f"  {kind}: {line}" for kind, line in values["examples"].items()]
    return "\n".join(lines)


def _reasons(values: dict[str, Any]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in values["refused"].items()) or "none"
