"""Closed forms of the step-time model, and what must never happen."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.perf.calibrate import ASSUMED
from nonuniform.perf.catalog import known, load_gpu, load_machine, load_model
from nonuniform.perf.comm import all_reduce_s, all_to_all_s, exposed_s, gather_s
from nonuniform.perf.flops import flops_per_token
from nonuniform.perf.gemm import gemm_s
from nonuniform.perf.hardware import HOP_FAR_S, HOP_NEAR_S, Gpu, Machine, at_clock, machine
from nonuniform.perf.layer import LayerTime, Micro, attended, layer_time
from nonuniform.perf.model import Model, even_part, whole_part
from nonuniform.perf.parallelism import Parallel, Work, check, refusal
from nonuniform.perf.pipeline import bubble_share, pipeline_s
from nonuniform.perf.step_time import step_time

H100 = load_gpu("h100_sxm")
LLAMA = load_model("llama3_70b")
GPT3 = load_model("gpt3_175b")
MIXTURE = load_model("qwen3_30b_a3b")
HERE = load_machine("h100_sxm")


def ideal(gpu: Gpu) -> Machine:
    """Without any loss."""
    nothing_lost = replace(
        ASSUMED, gemm_share=1.0, gemm_fill=0.0, launch_s=0.0, link_share=1.0, nic_share=1.0,
        memory_share=1.0, hidden_share=1.0, flash_share=1.0,
    )  # fmt: skip
    return machine(gpu, nothing_lost)


def test_parameters_are_those_that_are_published() -> None:
    assert LLAMA.parameters == pytest.approx(70.6e9, rel=0.005)
    assert load_model("llama3_8b").parameters == pytest.approx(8.03e9, rel=0.005)
    assert load_model("llama3_405b").parameters == pytest.approx(405.8e9, rel=0.005)
    assert GPT3.parameters == pytest.approx(174.6e9, rel=0.005)
    assert MIXTURE.parameters == pytest.approx(30.5e9, rel=0.01)
    # 3.3 B active, which counts the look-up of embeddings that takes no product.
    assert MIXTURE.active_parameters == pytest.approx(3.3e9 - 0.31e9, rel=0.03)


def test_a_token_costs_six_flops_per_parameter_plus_attention() -> None:
    whole = flops_per_token(GPT3, 2048, "whole")
    attention = 12 * GPT3.layers * GPT3.hidden * 2048
    assert whole == pytest.approx(6 * GPT3.parameters + attention, rel=1e-12)
    # As Narayanan et al. write it, without their fourth pass of recompute.
    inner = 1 + 2048 / (6 * GPT3.hidden) + GPT3.vocab / (12 * GPT3.layers * GPT3.hidden)
    assert whole == pytest.approx(72 * GPT3.layers * GPT3.hidden**2 * inner, rel=1e-12)
    assert flops_per_token(GPT3, 2048, "half") == pytest.approx(whole - attention / 2, rel=1e-12)


@given(st.integers(1, 4096), st.integers(0, 5000))
def test_a_window_sees_what_it_says(length: int, window: int) -> None:
    seen = [min(i + 0.5, window) if window else i + 0.5 for i in range(length)]
    assert attended(length, window) == pytest.approx(sum(seen) / length, rel=0.03, abs=0.51)


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 8))
def test_the_bubble_of_equal_stages(stages: int, count: int, interleave: int) -> None:
    total = pipeline_s([1.0] * stages, count, interleave)
    assert total / count - 1 == pytest.approx(bubble_share(stages, count, interleave), abs=1e-9)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.integers(1, 64))
def test_the_slowest_stage_sets_the_pace(stages: list[float], count: int) -> None:
    total = pipeline_s(stages, count)
    assert total == pytest.approx(sum(stages) + (count - 1) * max(stages))


@given(st.integers(2, 4096), st.floats(1.0, 1e10))
def test_a_ring_moves_its_share(members: int, size: float) -> None:
    fast = ideal(replace(H100, domain_gpus=4096))
    hops = 2 * HOP_NEAR_S * math.ceil(math.log2(members))
    wanted = 2 * (members - 1) / members * size / (H100.nvlink_gb_per_s * 1e9)
    assert all_reduce_s(fast, size, members, members) - hops == pytest.approx(wanted, abs=1e-12)


def test_a_group_leaves_its_domain_through_the_cards_of_its_members() -> None:
    fast = ideal(H100)
    one, eight = (gather_s(fast, 1e10, 64, near) for near in (1, 8))
    assert one / eight == pytest.approx(8, rel=0.01)
    assert gather_s(fast, 1e10, 1, 1) == 0.0
    half = all_to_all_s(fast, 1e9, 16, 8) - HOP_FAR_S
    assert half == pytest.approx(0.5e9 / (H100.nic_gb_per_s * 1e9))


@given(st.floats(0, 10), st.floats(0, 10))
def test_what_shows_is_between_nothing_and_all(comm_s: float, beside_s: float) -> None:
    shown = exposed_s(HERE, comm_s, beside_s)
    assert max(0.0, comm_s - beside_s) - 1e-12 <= shown <= comm_s


def test_a_large_product_reaches_the_rate_and_a_thin_one_the_memory() -> None:
    fast = ideal(H100)
    large = gemm_s(fast, 16384, 16384, 16384)
    assert 2 * 16384**3 / large == pytest.approx(fast.flops_per_s["bf16"])
    thin = gemm_s(fast, 1, 16384, 16384)
    assert thin == pytest.approx(2 * (16385 * 16384 + 16384) / fast.memory_bytes_per_s)


def test_without_losses_a_step_is_its_flops() -> None:
    fast = ideal(replace(H100, hbm_tb_per_s=1e6, nvlink_gb_per_s=1e9, nic_gb_per_s=1e9))
    step = step_time(fast, Work(LLAMA, 256, 4096), Parallel(tensor=8, data=4))
    scores = 6.0 * 4096 * LLAMA.heads * LLAMA.head_dim * LLAMA.layers * 256 * 4096 / 32
    products = (step.flops_per_gpu - scores) / fast.flops_per_s["bf16"]
    # Fused attention has a rate of its own, which its kernels were measured with.
    assert step.total_s - step.attention_s == pytest.approx(products, rel=1e-4)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Work, Parallel]:
    model = draw(st.sampled_from([LLAMA, GPT3, MIXTURE]))
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    pipeline = draw(st.sampled_from([1, 2, 4, 8]))
    p = Parallel(
        tensor=tensor,
        pipeline=pipeline,
        data=8 * draw(st.sampled_from([1, 2, 8])),
        context=draw(st.sampled_from([1, 2])),
        expert=draw(st.sampled_from([1, 4])) if model.experts else 1,
        interleave=draw(st.sampled_from([1, 2])) if pipeline > 1 and pipeline < 8 else 1,
        micro_batch=draw(st.sampled_from([1, 2])),
        precision=draw(st.sampled_from(["bf16", "fp8", "mxfp8"])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        zero=draw(st.sampled_from([0, 1, 3])),
        sequence_parallel=draw(st.booleans()),
        fused=draw(st.booleans()),
        overlap_tensor=draw(st.booleans()),
        overlap_data=draw(st.booleans()),
        overlap_pipeline=draw(st.booleans()),
    )
    return Work(model, p.data * p.micro_batch * 16, 4096), p


@settings(max_examples=200, deadline=None)
@given(
    jobs(),
    st.sampled_from(["hbm_tb_per_s", "nvlink_gb_per_s", "nic_gb_per_s", "clock"]),
    st.floats(1.0, 10.0),
)
def test_never_faster_with_something_slower(
    job: tuple[Work, Parallel], what: str, factor: float
) -> None:
    work, p = job
    if what == "clock":
        slow = at_clock(HERE, 1 / factor)
    else:
        gpu = replace(H100, **{what: getattr(H100, what) / factor})
        slow = machine(gpu, HERE.constants)
    assert step_time(slow, work, p).total_s >= step_time(HERE, work, p).total_s * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(jobs())
def test_the_parts_are_the_whole(job: tuple[Work, Parallel]) -> None:
    work, p = job
    assert refusal(HERE, work, p) is None
    step = step_time(HERE, work, p)
    parts = [value for key, value in step._asdict().items() if key.endswith("_s")]
    assert all(value >= 0 for value in parts)
    assert sum(parts) - step.total_s == pytest.approx(step.total_s)
    assert step.flops_per_gpu / step.total_s < HERE.gpu.fp8_tflops * 1e12


@given(st.integers(1, 64))
def test_whole_heads_are_never_less_than_the_mean(ranks: int) -> None:
    whole, even = whole_part(LLAMA, ranks), even_part(LLAMA, ranks)
    assert whole.heads >= even.heads
    assert whole.ffn >= even.ffn
    assert whole.heads == math.ceil(LLAMA.heads / ranks)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"tensor": 16}, "tensor = 16: more than the 8 GPUs of a domain"),
        ({"pipeline": 3}, "80 layers do not divide by pipeline x interleave = 3 x 1"),
        ({"pipeline": 8, "interleave": 3}, "pipeline x interleave = 8 x 3"),
        ({"data": 7}, "sequences = 256 do not divide by data x micro_batch = 7 x 1"),
        ({"tensor": 0}, "tensor = 0: must be at least 1"),
        ({"precision": "fp4"}, "precision = fp4: known are bf16, fp8, mxfp8"),
        ({"zero": 2}, "zero = 2: known are 0, 1, 3"),
        ({"expert": 4}, "expert = 4: 0 experts do not divide by it"),
        ({"context": 3}, "length = 4096 does not divide by context = 3"),
        ({"interleave": 2}, "interleave = 2: needs stages"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(change: dict[str, int], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        check(HERE, Work(LLAMA, 256, 4096), replace(Parallel(), **change))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gpu_without_fp8_says_so() -> None:
    with pytest.raises(BadInput, match="A100 SXM 80GB has no FP8"):
        check(load_machine("a100_sxm"), Work(LLAMA, 8, 128), Parallel(precision="fp8"))


def test_a_model_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="kv_heads = 8 is more than heads = 4"):
        Model("m", 2, 64, 4, 8, 16, 128, 100)
    with pytest.raises(BadInput, match="layers = 0"):
        Model("m", 0, 64, 4, 4, 16, 128, 100)


def test_every_file_of_the_catalog_can_be_read() -> None:
    for name in known("gpus"):
        assert load_machine(name).flops_per_s["bf16"] > 1e14
    for name in known("models"):
        assert load_model(name).parameters > 1e9


@pytest.mark.parametrize(
    ("name", "batch", "length", "forward_ms", "backward_ms"),
    [
        ("h200_sxm", 1, 2048, 0.142, 0.464),
        ("h200_sxm", 1, 8192, 1.708, 5.083),
        ("h200_sxm", 1, 32768, 25.566, 75.688),
        ("gb200_nvl72", 2, 2048, 0.125, 0.389),
        ("gb200_nvl72", 2, 8192, 1.397, 4.127),
        ("gb200_nvl72", 2, 32768, 21.692, 71.756),
    ],
)
def test_attention_takes_as_long_as_its_kernel_was_measured(
    name: str, batch: int, length: int, forward_ms: float, backward_ms: float
) -> None:
    """64 heads of 128, 8 KV heads, causal, BF16, alone on the GPU: NVIDIA/cudnn-frontend."""
    time = layer_time(ideal(load_gpu(name)), LLAMA, even_part(LLAMA, 1), Micro(batch, length))
    assert time.attention_forward * 1e3 == pytest.approx(forward_ms, rel=0.1)
    # The longest backward on GB200 took 15% longer than the others would have it.
    assert time.attention_backward * 1e3 == pytest.approx(backward_ms, rel=0.16)


def test_sequence_parallel_ranks_cast_before_they_gather() -> None:
    part = even_part(LLAMA, 8)

    def layer(precision: str, sequence_parallel: bool) -> LayerTime:
        shared = Micro(1, 8192, precision=precision, overlap_tensor=False)
        micro = shared._replace(sequence_parallel=sequence_parallel)
        return layer_time(HERE, LLAMA, part, micro)

    for precision in ("fp8", "mxfp8"):
        cut, whole = layer(precision, True), layer(precision, False)
        # One byte gathered for two scattered, where the other moves two and two.
        assert cut.tensor_comm / whole.tensor_comm == pytest.approx(0.75, abs=0.01)
        saved_by_casts = (whole.memory_forward - cut.memory_forward) - (
            layer("bf16", False).memory_forward - layer("bf16", True).memory_forward
        )
        assert saved_by_casts > 0
    assert layer("bf16", True).tensor_comm == layer("bf16", False).tensor_comm
