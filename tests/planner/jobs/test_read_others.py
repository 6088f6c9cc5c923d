"""torchtitan, Hugging Face with DeepSpeed, and this project's own TOML."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nonuniform.errors import BadInput
from nonuniform.planner.jobs import read_job, with_gpus

FILES = Path(__file__).parent / "files"


def test_torchtitan_with_a_model_of_the_catalog() -> None:
    read = read_job(FILES / "titan_405b.toml")
    job = read.job
    assert (job.tensor, job.data, job.gpus, job.sequences) == (8, 64, 512, 128)
    assert (job.precision, job.recompute, job.zero, job.checkpoint_every_steps) == (
        "fp8",
        "full",
        3,
        250,
    )
    assert job.model is not None
    assert job.model.layers == 126
    assert job.overlap_tensor
    assert read.unknown == ("parallelism.brand_new_degree 2 ([parallelism] brand_new_degree)",)


def test_torchtitan_takes_its_gpus_from_the_cluster() -> None:
    read = read_job(FILES / "titan_pipeline.toml")
    assert (read.job.gpus, read.job.data, read.job.sequences) == (None, None, None)
    assert (read.job.pipeline, read.job.interleave, read.job.micro_batch) == (4, 2, 1)
    job = with_gpus(read, 256, "--gpus").job
    # 16 sequences a replica, one at a time, on 64 replicas
    assert (job.data, job.sequences, job.accumulation) == (64, 1024, 16)
    assert job.zero == 2
    parallel = job.parallel()
    assert parallel is not None
    assert parallel.zero == 1


@pytest.mark.parametrize("path", ["hf_folder", "hf_folder/training_args.json"])
def test_hugging_face_with_deepspeed_and_a_model(path: str) -> None:
    """A folder, and a file that names the second, are the same job."""
    read = read_job(FILES / path)
    job = read.job
    assert (job.tensor, job.data, job.gpus, job.sequences) == (1, 32, 32, 512)
    assert (job.zero, job.recompute, job.overlap_data, job.length) == (3, "full", True, 4096)
    assert job.model is not None
    assert (job.model.kv_heads, job.model.gated, job.model.tied) == (8, True, False)
    assert any("offload_optimizer to cpu" in line for line in read.unknown)
    assert any("neftune_noise_alpha" in line for line in read.unknown)


def test_one_json_with_both_parts() -> None:
    read = read_job(FILES / "hf_combined.json")
    assert (read.job.tensor, read.job.zero, read.job.micro_batch) == (4, 1, 4)
    assert read.job.model is None
    assert read.job.work() is None
    job = with_gpus(read, 64, "--gpus").job
    assert (job.data, job.sequences) == (16, 16 * 4 * 4)


def test_transformers_started_by_deepspeed_in_a_script() -> None:
    read = read_job(FILES / "hf_script.sh")
    assert (read.job.gpus, read.job.sequences, read.job.steps) == (32, 256, 1000)
    assert read.unknown == ("--deepspeed hf_folder/ds_own.json (no such file)",)


def test_deepspeed_that_contradicts_the_arguments(tmp_path: Path) -> None:
    shutil.copytree(FILES / "hf_folder", tmp_path / "hf")
    file = tmp_path / "hf" / "ds_zero3.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"train_micro_batch_size_per_gpu": 3}))
    with pytest.raises(BadInput, match=r"per_device_train_batch_size = 2, but .* = 3"):
        read_job(tmp_path / "hf")
    file.write_text(json.dumps(values | {"train_batch_size": 500}))
    with pytest.raises(BadInput, match=r"global batch / .* = 500 / \(2 x 8\) is not whole"):
        read_job(tmp_path / "hf")


def test_a_named_file_that_is_missing(tmp_path: Path) -> None:
    shutil.copy(FILES / "hf_folder" / "training_args.json", tmp_path)
    with pytest.raises(BadInput, match=r"deepspeed = 'configs/ds_zero3.json': no such file"):
        read_job(tmp_path / "training_args.json")


def test_plain_toml() -> None:
    read = read_job(FILES / "plain.toml")
    job = read.job
    assert (job.tensor, job.pipeline, job.data, job.gpus) == (32, 4, 32, 4096)
    assert job.steps == 119_210  # 1e12 tokens in steps of 1024 x 8192
    assert job.model is not None
    assert job.model.hidden == 20480
    assert (read.format, read.unknown) == ("toml", ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus = 4096", "gpus = 4096\ndata = 31", "x 31 = 3968, but the job has 4096 GPUs"),
        (
            "gpus = 4096",
            "gpus = 4096\nnodes = 10\ngpus_per_node = 8",
            "10 x 8 = 80, but gpus = 4096",
        ),
        ("tensor = 32", "tensr = 32", r"unknown key tensr, did you mean tensor\?"),
        ("tensor = 32", 'tensor = "a"', "must be a whole number"),
        ("tensor = 32", "tensor = true", "must be a whole number"),
        ('"gpt_480b"', '"gpt_5"', "known are gpt3_175b"),
        ("preemptible = false", "preemptible = 1", "must be true or false"),
        ("tokens = 1.0e12", "tokens = nan", "must be a number above 0"),
        ("length = 8192", 'recompute = "some"', "known are none, selective, full"),
    ],
)
def test_plain_toml_with_mistakes(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text((FILES / "plain.toml").read_text().replace(old, new))
    with pytest.raises(BadInput, match=message):
        read_job(path)
