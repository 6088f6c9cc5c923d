"""Bytes of a GPU in training: the closed forms that others published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nonuniform.perf.catalog import load_machine, load_model
from nonuniform.perf.memory_training import (
    activation_bytes_per_token,
    misfit,
    training_bytes,
)
from nonuniform.perf.model import even_part
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.step_time import stage_parameters

GPT3 = load_model("gpt3_175b")
LLAMA = load_model("llama3_70b")
HERE = load_machine("h100_sxm")


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_are_those_of_korthikanti(tensor: int) -> None:
    """Table 2 of the paper: bytes of a layer per (token x hidden)."""
    ratio = 5 * GPT3.heads * 2048 / GPT3.hidden
    part = even_part(GPT3, tensor)
    for change, wanted in [
        ({"sequence_parallel": False, "recompute": "none"}, 10 + (24 + ratio) / tensor),
        ({"sequence_parallel": True, "recompute": "none"}, (34 + ratio) / tensor),
        ({"sequence_parallel": True, "recompute": "selective"}, 34 / tensor),
        ({"sequence_parallel": False, "recompute": "full"}, 2.0),
    ]:
        p = replace(Parallel(tensor=tensor, fused=False), **change)
        found = activation_bytes_per_token(GPT3, p, part, 2048)
        assert found == pytest.approx(wanted * GPT3.hidden)


def test_zero_cuts_what_it_says() -> None:
    work = Work(LLAMA, 128, 4096)
    p = Parallel(tensor=8, data=16, zero=0)
    held = stage_parameters(LLAMA, p, even_part(LLAMA, 8))
    assert held == pytest.approx(LLAMA.parameters / 8, rel=0.001)
    none, one, three = (training_bytes(HERE, work, replace(p, zero=z)) for z in (0, 1, 3))
    assert none.weights + none.gradients + none.optimizer == pytest.approx(18 * held)
    assert one.weights + one.gradients + one.optimizer == pytest.approx((6 + 12 / 16) * held)
    assert three.weights + three.gradients + three.optimizer == pytest.approx(18 * held / 16)


def test_a_healthy_rank_holds_the_gradients_of_a_hurt_one() -> None:
    work, p = Work(LLAMA, 128, 4096), Parallel(tensor=8, data=16)
    alone, beside = training_bytes(HERE, work, p), training_bytes(HERE, work, p, sync_degree=7)
    assert alone.sync == 0
    assert beside.gradients + beside.sync == pytest.approx(alone.gradients * 8 / 7)
    hurt = training_bytes(HERE, work, p, part=even_part(LLAMA, 7))
    assert hurt.optimizer > alone.optimizer
    assert hurt.activations > alone.activations


def test_what_does_not_fit_is_told_by_how_much() -> None:
    need = training_bytes(HERE, Work(LLAMA, 8, 4096), Parallel())
    line = misfit(HERE, need)
    assert line is not None
    assert "\n" not in line
    assert f"{(need.total - 80e9) / 1e9:.1f} GB too many" in line
    small = training_bytes(HERE, Work(LLAMA, 256, 4096), Parallel(tensor=8, pipeline=8, data=8))
    assert misfit(HERE, small) is None


def test_stages_hold_as_many_micro_batches_as_there_are_stages() -> None:
    p = Parallel(tensor=8, pipeline=8, data=1)
    many = training_bytes(HERE, Work(LLAMA, 64, 4096), p).activations
    few = training_bytes(HERE, Work(LLAMA, 2, 4096), p).activations
    assert many / few == pytest.approx(4)


def test_fp8_keeps_smaller_inputs() -> None:
    part = even_part(LLAMA, 4)
    p = Parallel(tensor=4)
    whole = activation_bytes_per_token(LLAMA, p, part, 8192)
    less = activation_bytes_per_token(LLAMA, replace(p, precision="fp8"), part, 8192)
    assert whole - less == pytest.approx(2 * LLAMA.hidden / 4 + LLAMA.ffn / 4)
    # A published configuration that ran: 70 B on 64 H100 of 80 GB, length 8,192.
    spread = Parallel(tensor=4, pipeline=8, data=2, interleave=5, precision="fp8")
    assert misfit(HERE, training_bytes(HERE, Work(LLAMA, 256, 8192), spread)) is None
