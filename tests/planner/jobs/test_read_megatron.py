"""Launch scripts and YAML of Megatron-LM, as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonuniform.errors import BadInput
from nonuniform.planner.jobs import Fact, ReadJob, read_job, with_gpus

FILES = Path(__file__).parent / "files"


def fact(read: ReadJob, name: str) -> Fact:
    return next(fact for fact in read.facts if fact.name == name)


def test_arrays_arithmetic_and_slurm() -> None:
    read = read_job(FILES / "megatron_arrays.sh")
    job = read.job
    assert (job.tensor, job.pipeline, job.context, job.data) == (8, 4, 1, 16)
    assert (job.nodes, job.gpus_per_node, job.gpus) == (64, 8, 512)
    assert (job.micro_batch, job.accumulation, job.sequences) == (1, 32, 512)
    assert (job.steps, job.checkpoint_every_steps, job.length) == (100_000, 500, 8192)
    assert (job.interleave, job.limit_days, job.requeue, job.preemptible) == (4, 7.0, True, False)
    assert job.name == "atlas-70b"
    assert job.tokens == 100_000 * 512 * 8192
    assert job.zero == 1
    assert job.sequence_parallel
    assert job.overlap_data
    model = job.model
    assert model is not None
    assert (model.layers, model.kv_heads, model.ffn, model.vocab) == (80, 8, 28672, 128256)
    assert model.gated
    assert not model.tied
    assert read.format == "megatron"


def test_a_comment_is_no_argument_and_lines_are_named() -> None:
    read = read_job(FILES / "megatron_arrays.sh")
    tensor = fact(read, "tensor parallel")
    assert (tensor.kind, tensor.text) == ("stated", "8")
    assert tensor.note == "--tensor-model-parallel-size, line 42"
    assert fact(read, "context parallel").assumed


def test_unknown_is_listed_and_not_fatal() -> None:
    read = read_job(FILES / "megatron_arrays.sh")
    assert any(line.startswith("--site-hook on") for line in read.unknown)
    assert any(line.startswith("source /etc/site/modules.sh") for line in read.unknown)
    assert not any("--lr" in line or "--bf16" in line for line in read.unknown)


def test_one_string_run_by_a_shell_inside_srun() -> None:
    read = read_job(FILES / "megatron_string.sh")
    job = read.job
    assert (job.tensor, job.pipeline, job.data, job.gpus) == (4, 8, 4, 128)
    assert job.steps == 100_000  # 51,200,000 samples in steps of 512
    assert job.recompute == "selective"


def test_what_hangs_on_an_unknown_condition_is_marked() -> None:
    """PRECISION is not set in the file: whether FP8 is on cannot be told."""
    precision = fact(read_job(FILES / "megatron_string.sh"), "precision")
    assert precision.text == "fp8"
    assert precision.assumed
    assert "condition" in precision.note
    assert not fact(read_job(FILES / "megatron_string.sh"), "tensor parallel").assumed


def test_the_environment_goes_before_a_default_and_is_told() -> None:
    read = read_job(FILES / "megatron_string.sh", {"TENSOR": "8", "NNODES": "32"})
    assert (read.job.tensor, read.job.gpus, read.job.data) == (8, 256, 4)
    assert fact(read, "$TENSOR").note == "from the environment"
    plain = read_job(FILES / "megatron_string.sh", {"PRECISION": "bf16"})
    assert plain.job.precision == "bf16"


def test_quotes_continued_lines_and_uneven_stages() -> None:
    job = read_job(FILES / "megatron_continued.sh").job
    assert (job.tensor, job.pipeline, job.context, job.data) == (8, 16, 2, 4)
    assert (job.nodes, job.gpus_per_node, job.length) == (128, 8, 8192)
    assert (job.precision, job.recompute, job.zero) == ("fp8", "full", 3)
    assert job.uneven  # 126 layers and two ends on 16 stages


def test_yaml_of_a_mixture_of_experts() -> None:
    read = read_job(FILES / "megatron_moe.yaml")
    job = read.job
    assert (job.tensor, job.pipeline, job.expert, job.data, job.gpus) == (4, 4, 8, 32, 512)
    assert job.model is not None
    assert (job.model.experts, job.model.experts_per_token, job.model.ffn) == (64, 4, 1792)
    assert (read.format, job.name, job.sequence_parallel) == ("megatron-yaml", "atlas-moe", True)
    assert read.unknown == ("our_own_scheduler cosine-with-a-twist (our_own_scheduler)",)


def test_a_bare_list_of_arguments_without_gpus() -> None:
    read = read_job(FILES / "megatron_bare.args")
    assert (read.job.tensor, read.job.gpus, read.job.data) == (1, None, None)
    assert fact(read, "GPUs").text == "not known"
    assert read.job.parallel() is None
    full = with_gpus(read, 64, "--gpus")
    assert (full.job.gpus, full.job.data, full.job.accumulation) == (64, 64, 1)
    parallel = full.job.parallel()
    assert parallel is not None
    assert parallel.gpus == 64
    with pytest.raises(BadInput, match=r"global batch = 256 .* 4 x 60 = 240"):
        with_gpus(read, 60, "--gpus")


def test_missing_tensor_parallel_is_one_and_marked() -> None:
    read = read_job(FILES / "no_tensor.sh")
    tensor = fact(read, "tensor parallel")
    assert read.job.tensor == 1
    assert tensor.assumed
    assert tensor.as_dict()["assumed"] is True
    assert (read.job.gpus, read.job.data, read.job.accumulation) == (32, 32, 2)


def test_contradictory_sizes_are_refused_with_the_equation() -> None:
    with pytest.raises(BadInput) as error:
        read_job(FILES / "contradictory.sh")
    text = str(error.value)
    assert "world = 96 GPUs" in text
    assert "tensor x pipeline x context = 8 x 8 x 1 = 64" in text
    assert "--tensor-model-parallel-size, line 2" in text
    assert "--nnodes, line 1" in text
    assert "\n" not in text
    assert error.value.exit_status == 2


def test_html_stays_text() -> None:
    read = read_job(FILES / "html_name.sh")
    assert read.job.name == "<script>alert('x')</script>"
    assert any("<img src=x onerror=alert(1)>" in line for line in read.unknown)
    assert (read.job.gpus, read.job.gpus_per_node, read.job.preemptible) == (16, 8, True)


def test_ends_of_lines_of_another_system() -> None:
    job = read_job(FILES / "crlf.sh").job
    assert b"\r\n" in (FILES / "crlf.sh").read_bytes()
    assert (job.tensor, job.sequences, job.length) == (2, 64, 2048)


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    text = (FILES / "nasty.sh").read_text().replace("/tmp/nonuniform-was-run", str(mark))
    (tmp_path / "job.sh").write_text(text)
    read = read_job(tmp_path / "job.sh")
    assert not mark.exists()
    assert read.job.tensor == 8
    assert read.job.model is not None
    assert read.job.model.hidden == 2048
    assert read.job.gpus is None
    for piece in ("$(cat more.args)", "--nnodes $(scontrol", "--train-iters $ITERATIONS"):
        assert any(line.startswith(piece) for line in read.unknown), piece


@pytest.mark.parametrize(
    ("old", "new", "equation"),
    [
        ("--num-layers 24", "--num-layers 25", r"layers / \(pipeline x interleave\) = 25 / \(4"),
        (
            "--num-attention-heads 16",
            "--num-attention-heads 15 --kv-channels 128",
            "heads / tensor = 15 / 2",
        ),
        ("--global-batch-size 64", "--global-batch-size 63", r"global batch = 63 .* 1 x 16"),
        (
            "--seq-length 2048",
            "--seq-length 2047 --context-parallel-size 2",
            "length / context = 2047 / 2",
        ),
        ("--seq-length 2048", "--seq-length 2048 --context-parallel-size 3", "world = 128 GPUs"),
        ("--nnodes 16", "--nnodes sixteen-ish --nnodes 1e99", None),
        ("--num-layers 24", "--num-layers many", "must be a whole number"),
        ("--num-layers 24", "--num-layers -24", "must be at least 1"),
        ("--num-layers 24", "--num-layers $LAYERS", "LAYERS is not set"),
        (
            "--num-layers 24",
            "--num-layers 24 --expert-model-parallel-size 2",
            "experts / expert = 0 / 2",
        ),
        ("#!/bin/bash", "#SBATCH --nodes=8", "--nodes, line 1 = 8"),
    ],
)
def test_sizes_that_do_not_go_together(
    tmp_path: Path, old: str, new: str, equation: str | None
) -> None:
    script = (
        "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py --num-layers 24 "
        "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 "
        "--global-batch-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
        "--bf16\n"
    )
    path = tmp_path / "job.sh"
    path.write_text(script)
    assert read_job(path).job.data == 16
    path.write_text(script.replace(old, new))
    if equation is None:
        assert read_job(path).job.nodes is None
        return
    with pytest.raises(BadInput, match=equation) as error:
        read_job(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
