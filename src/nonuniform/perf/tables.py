"""Published tables as rows that the model can be asked about.

In: a folder with fit/ and check/. Out: `Row`s: what was run and how long a step took. What the
tables do not say is read as docs/perf-conventions.md declares. Does not know: the model's answer.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_gpu, load_model
from nonuniform.perf.flops import flops_per_token
from nonuniform.perf.hardware import Gpu, with_network
from nonuniform.perf.model import Model
from nonuniform.perf.parallelism import Parallel, Work

Cells = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """`alike`: rows that are left out together, such as all of one model size. `counted`: whether
    the row is in any average; the reason why not is in `label`. `choices`: other spreads that the
    table allows, of which the fastest counts."""

    table: str
    label: str
    alike: str
    gpu: Gpu
    work: Work
    parallel: Parallel
    measured_s: float
    counted: bool = True
    choices: tuple[Parallel, ...] = ()


_OLD = Parallel(
    zero=0,
    fused=False,
    sequence_parallel=False,
    recompute="full",
    overlap_tensor=False,
    overlap_data=False,
    overlap_pipeline=False,
    cross_domain=True,
)


def gpt(name: str, layers: int, hidden: int, heads: int, vocab: int, tied: bool = True) -> Model:
    """As GPT-3: FFN of four times the width, no gate, no groups."""
    dim = hidden // heads
    return Model(name, layers, hidden, heads, heads, dim, 4 * hidden, vocab, False, tied)


def _korthikanti(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = load_gpu("a100_sxm")
    for c in cells:
        selective = c["activation_recompute"] == "attn_only"
        heads, layers = int(c["attn_heads"]), int(c["num_blocks"])
        model = gpt(c["model"], layers, int(c["hidden"]), heads, 51200)
        parallel = replace(
            _OLD,
            tensor=int(c["TP"]),
            pipeline=int(c["PP"]),
            data=int(c["DP"]),
            interleave=int(c["interleave"]),
            micro_batch=int(c["microbatch_size"]),
            recompute="selective" if selective else "full",
            sequence_parallel=c["sequence_parallel"] == "True",
        )
        work = Work(model, int(c["batch_size"]), int(c["seq_size"]))
        label = f"{c['model']} {c['activation_recompute']}"
        rows.append(
            Row(
                "korthikanti", label, c["model"], a100, work, parallel, float(c["iteration_time_s"])
            )
        )
    return rows


def _vtrain(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = with_network(load_gpu("a100_sxm"), nic_gb_per_s=12.5)
    models: dict[str, Model] = {}
    for c in cells:
        size = c["Parameters (billion)"]
        if size not in models:
            shape = (int(c["# layers"]), int(c["hidden size"]), int(c["attention heads"]))
            models[size] = gpt(f"gpt-{size}B", *shape, 51200)
        parallel = replace(
            _OLD,
            tensor=int(c["tensor parallelism"]),
            pipeline=int(c["pipeline parallelism"]),
            data=int(c["data parallelism"]),
            micro_batch=int(c["micro batch"]),
        )
        work = Work(models[size], int(c["global batch"]), int(c["sequence length"]))
        p = parallel
        label = f"{size}B TP{p.tensor} DP{p.data} PP{p.pipeline} mb{p.micro_batch}"
        seconds = float(c["iteration time (ms)"]) / 1000
        rows.append(Row("vtrain", label, f"{size}B", a100, work, parallel, seconds))
    return rows


def _readme(cells: list[Cells]) -> list[Row]:
    rows = []
    h100 = load_gpu("h100_sxm")
    for c in cells:
        size = c["Model size"]
        layers, stages = int(c["Number of layers"]), int(c["Pipeline MP size"])
        shape = (layers, int(c["Hidden size"]), int(c["Attention heads"]))
        work = Work(gpt(f"gpt-{size}", *shape, 131072, tied=False), int(c["Batch size"]), 4096)
        data = int(c["Data-parallel size"])
        parallel = Parallel(
            tensor=int(c["Tensor MP size"]),
            pipeline=stages,
            data=data,
            interleave=layers // stages if stages > 1 else 1,
            micro_batch=1 if stages > 1 else _largest_micro_batch(work, data),
            recompute="selective",
        )
        flops = flops_per_token(work.model, 4096, "whole") * work.tokens
        seconds = flops / int(c["Number of GPUs"]) / float(c["Per-GPU teraFLOP/s"]) / 1e12
        rows.append(Row("h100-readme", size, size, h100, work, parallel, seconds))
    return rows


def _largest_micro_batch(work: Work, data: int) -> int:
    """Powers of two only: a batch of 4 sequences a rank fits into 80 GB for all rows without
    stages, by memory_training.py."""
    share = work.sequences // data
    return share & -share


def _narayanan(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = load_gpu("a100_sxm")
    heads = {2304: 24, 3072: 32, 4096: 32, 6144: 48, 8192: 64, 10240: 80, 12288: 96}
    heads |= {16384: 128, 20480: 128, 25600: 160}
    for c in cells:
        hidden, layers = int(c["Hidden size"]), int(c["Number of layers"])
        both, gpus = int(c["Model-parallel size"]), int(c["Number of GPUs"])
        tensor = min(8, both)
        work = Work(
            gpt(c["Model size"], layers, hidden, heads[hidden], 51200), int(c["Batch size"]), 2048
        )
        base = replace(_OLD, tensor=tensor, pipeline=both // tensor, data=gpus // both)
        choices = tuple(
            replace(base, micro_batch=micro, interleave=_interleave(work, base, micro))
            for micro in (1, 2, 4)
        )
        seconds = _with_recompute(work) / gpus / _number(c["Achieved teraFlOPs per GPU"]) / 1e12
        label = c["Model size"]
        rows.append(Row("narayanan", label, label, a100, work, base, seconds, True, choices))
    return rows


def _interleave(work: Work, p: Parallel, micro_batch: int) -> int:
    """Two chunks a stage, where layers and micro-batches divide."""
    count = work.sequences // p.data // micro_batch
    divides = work.model.layers % (2 * p.pipeline) == 0 and count % p.pipeline == 0
    return 2 if p.pipeline > 1 and divides else 1


def _with_recompute(work: Work) -> float:
    """FLOPs of a step as Narayanan et al. count them: one more forward, the whole square."""
    m = work.model
    inner = 1 + work.length / (6 * m.hidden) + m.vocab / (16 * m.layers * m.hidden)
    return 96.0 * work.tokens * m.layers * m.hidden**2 * inner


def _ptd(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = load_gpu("a100_sxm")
    shapes = {"174.6": (96, 12288, 96), "529.6": (105, 20480, 128)}
    for c in cells:
        size, scheme = c["Number of parameters (billion)"], c["Scheme"]
        gpus, both = int(c["Number of GPUs"]), int(c["Model-parallel size"])
        work = Work(gpt(f"gpt-{size}B", *shapes[size], 51200), int(_number(c["Batch size"])), 2048)
        tensor = min(8, both)
        ptd = scheme.startswith("PTD")
        parallel = replace(
            _OLD,
            tensor=tensor,
            pipeline=both // tensor,
            data=gpus // both,
            micro_batch=int(c["Microbatch size"]),
            zero=0 if ptd else 3,
        )
        rate = float(c["Achieved teraFlOP/s per GPU"]) * 1e12
        label = f"{'PTD' if ptd else 'ZeRO-3'} {size}B {gpus} GPUs"
        seconds = _with_recompute(work) / gpus / rate
        rows.append(Row("narayanan-ptd", label, size, a100, work, parallel, seconds, ptd))
    return rows


def _mt_nlg(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = load_gpu("a100_sxm")
    for c in cells:
        work = Work(gpt("mt-nlg-530b", 105, 20480, 128, 51200), int(c["global_batch_size"]), 2048)
        tensor, pipeline, data = (int(c[key]) for key in ("TP", "PP", "DP"))
        parallel = replace(_OLD, tensor=tensor, pipeline=pipeline, data=data)
        seconds = float(c["latency per iter (s)"])
        label = f"530B DP{c['DP']}"
        rows.append(Row("mt-nlg", label, label, a100, work, parallel, seconds))
    return rows


def _megascale(cells: list[Cells]) -> list[Row]:
    rows = []
    a100 = load_gpu("a100_sxm")
    model = gpt("gpt-175B", 96, 12288, 128, 64000)
    for c in cells:
        gpus, batch = int(c["GPUs"]), int(c["Batch Size"])
        parallel = Parallel(
            tensor=8,
            pipeline=8,
            data=gpus // 64,
            interleave=6,
            recompute="selective",
            overlap_tensor=False,
            overlap_data=False,
        )
        label = f"{c['Method']} {gpus} GPUs batch {batch}"
        counted = c["Method"] == "Megatron-LM"
        seconds = float(c["Iteration Time (s)"])
        work = Work(model, batch, 2048)
        rows.append(Row("megascale", label, label, a100, work, parallel, seconds, counted))
    return rows


_BRIDGE_GPUS = {"DGX-H100": "h100_sxm", "DGX-B200": "b200_sxm", "DGX-GB200": "gb200_nvl72"}
_BRIDGE_MODELS = {
    "LLAMA3_8B": "llama3_8b",
    "LLAMA3_70B": "llama3_70b",
    "Qwen3_30B_a3B": "qwen3_30b_a3b",
}


def _bridge(table: str) -> Callable[[list[Cells]], list[Row]]:
    def rows(cells: list[Cells]) -> list[Row]:
        return [row for c in cells if (row := _bridge_row(table, c)) is not None]

    return rows


def _bridge_row(table: str, c: Cells) -> Row | None:
    if c["System"] not in _BRIDGE_GPUS or c["Model"] not in _BRIDGE_MODELS:
        return None
    number = {key: _count(c[key]) for key in ("TP", "PP", "CP", "VP", "EP", "MBS", "FSDP")}
    gpus = int(c["#-GPUs"])
    first = c["Precision"].split()[0]
    precision = {"MXFP8": "mxfp8", "BF16": "bf16"}.get(first, "fp8")
    # Of "FP8-CS (FP8-MX)" and "31508 (29789)" the first belongs together.
    parallel = Parallel(
        tensor=number["TP"],
        pipeline=number["PP"],
        data=gpus // (number["TP"] * number["PP"] * number["CP"]),
        context=number["CP"],
        expert=number["EP"],
        interleave=number["VP"] if number["PP"] > 1 else 1,
        micro_batch=number["MBS"],
        precision=precision,
        zero=3 if number["FSDP"] > 1 else 1,
        gradient_bytes=2,
    )
    work = Work(load_model(_BRIDGE_MODELS[c["Model"]]), int(c["GBS"]), int(c["Sequence Length"]))
    seconds = work.tokens / gpus / _number(c["Tokens / sec / GPU"])
    pretraining = c["Table"].startswith("Pre-Training")
    label = (
        f"{c['Model']} {c['System'][4:]} {precision} {c['Table'].split()[0]} {c['Container'][:8]}"
    )
    group = f"{c['System'][4:]} {precision}"
    gpu = load_gpu(_BRIDGE_GPUS[c["System"]])
    return Row(table, label, group, gpu, work, parallel, seconds, pretraining)


def _count(cell: str) -> int:
    """A count; a blank or n/a is 1, as is 0."""
    return int(cell) if re.fullmatch(r"[1-9]\d*", cell.strip()) else 1


def _number(cell: str) -> float:
    """The first number of a cell."""
    found = re.match(r"[\d.]+", cell.strip())
    if not found:
        raise BadInput(f"a published table has {cell!r} where a number is meant")
    return float(found.group())


_FILES: dict[str, tuple[str, Callable[[list[Cells]], list[Row]]]] = {
    "korthikanti": ("fit/korthikanti2022_table5_iteration_times.csv", _korthikanti),
    "vtrain": ("fit/vtrain_ground_truth_multi_a100.csv", _vtrain),
    "h100-readme": ("fit/megatron_lm_readme_h100_weak_scaling.csv", _readme),
    "narayanan": ("check/narayanan2021_megatron_a100_weak_scaling.csv", _narayanan),
    "narayanan-ptd": ("check/narayanan2021_table2_ptd_vs_zero3.csv", _ptd),
    "mt-nlg": ("check/mt_nlg_530b.csv", _mt_nlg),
    "megascale": ("check/megascale_table2.csv", _megascale),
    "bridge-llama": ("check/megatron_bridge_llama.csv", _bridge("bridge-llama")),
    "bridge-moe": ("check/megatron_bridge_moe.csv", _bridge("bridge-moe")),
}
FIT_TABLES = ("korthikanti", "vtrain", "h100-readme")
CHECK_TABLES = tuple(name for name in _FILES if name not in FIT_TABLES)


def read_table(folder: Path, name: str) -> tuple[Row, ...]:
    file, rows = _FILES[name]
    path = folder / file
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return tuple(rows(list(csv.DictReader(stream))))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (KeyError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as the table {name}: {error}") from None
