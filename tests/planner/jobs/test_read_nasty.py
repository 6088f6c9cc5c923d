"""Whatever a file holds, reading it ends soon: with a job, or with one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.planner.jobs import read_job

FILES = Path(__file__).parent / "files"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} {{p: *{a}, q: *{a}, r: *{a}, s: *{a}}}\n"
    for a, b in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.sh", b"  \n", "is empty"),
        ("binary.sh", b"#!/bin/sh\n\x00\x01\x02", "is not text"),
        ("latin.sh", b"NAME=\xe9\n", "is not UTF-8"),
        ("big.sh", b"# x\n" * 400_000, "larger than 256 KiB"),
        ("none.sh", b"echo hello\n", "no command of it has arguments"),
        ("a.json", b"[1, 2]", "is a list"),
        ("a.json", b"[" * 100_000, "is not valid JSON"),
        ("a.json", b'{"max_steps": 1, "max_steps": 2}', "given twice"),
        ("a.json", b'{"max_steps": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        ("a.json", b'{"lr": 1}', "has no TrainingArguments"),
        ("a.yaml", b"a: [1", "is not valid YAML"),
        ("a.yaml", b"micro_batch_size: 1\nmicro_batch_size: 2\n", "given twice"),
        ("a.yaml", b"!!python/object/apply:os.system ['true']", "is not valid YAML"),
        ("a.yaml", BOMB.encode(), "too many for a job|nested|no Megatron"),
        ("a.yaml", b"[" * 5000, "is not valid YAML"),
        ("a.toml", b"a = ", "is not valid TOML"),
        ("a.toml", b"[job", "is not valid TOML"),
        ("a.toml", b"x = 1", r"has no \[job\]"),
        ("a.toml", b"x = " + b"[" * 20_000, "is not valid TOML"),
        ("grow.sh", b"A=--xxxxxxxxxxxxxxxx\n" + b'A="$A$A"\n' * 60, "grow without end|no command"),
        ("deep.sh", b"echo " + b"${A:-" * 300 + b"}" * 300, "nested too deep|no command"),
        ("array.sh", b"A=( 1 2", "never closed"),
        ("single.sh", b"echo 'a", "never closed"),
        ("brace.sh", b"echo ${A", "never closed"),
    ],
)
def test_nasty_files_are_refused_in_one_line(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInput, match=message) as error:
        read_job(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value)) < 700


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.sh", tmp_path):
        with pytest.raises(BadInput, match=r"no such file|no file of the folder"):
            read_job(path)
    with pytest.raises(BadInput, match='line 2: the " that opens'):
        read_job(FILES / "unbalanced.sh")


PIECES = st.sampled_from(
    (
        *("torchrun", "--num-layers 8", "--hidden-size", "$A", "${A:-4}", "'", '"', "$((", "))"),
        *("(", ")", "\\\n", "\n", ";", "if [ $A = 1 ]; then", "fi", "case $A in", "esac", ";;"),
        *("else", "A=(", "`", "<<EOF", "EOF", "A+=", "--micro-batch-size=2", "&&", "||", "#"),
        *("${", "}", "$(", "bash -c", "\t", "--global-batch-size 8", "2", "é", "*", "for i in"),
        *("--tensor-model-parallel-size", "do", "done"),
    )
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PIECES, max_size=30))
def test_any_script_ends_in_a_job_or_one_line(tmp_path: Path, pieces: list[str]) -> None:
    path = tmp_path / "job.sh"
    path.write_text(" ".join(["x", *pieces]))
    said = ""
    try:
        read = read_job(path)
    except BadInput as problem:
        said = str(problem)
    else:
        assert read.job.tensor >= 1
    assert "\n" not in said
