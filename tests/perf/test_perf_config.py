"""CONFIG.toml of the step-time model: read, shown, searched; mistakes are one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nonuniform.errors import BadInput
from nonuniform.perf.config_file import load_config
from nonuniform.perf.search import need_one, search, spreads
from nonuniform.perf.show import perf_json, perf_text, search_json, search_text

GOOD = """
[hardware]
gpu = "gb200_nvl72"
gpus = 2048
[model]
name = "gpt_480b"
[batch]
sequences = 1024
length = 8192
[parallel]
tensor = 32
pipeline = 4
data = 16
[nonuniform]
degrees = [30, 28]
"""


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "CONFIG.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_it_says_where_the_time_goes(tmp_path: Path) -> None:
    found = perf_json(load_config(config(tmp_path, GOOD)))
    found = json.loads(json.dumps(found))
    assert sum(found["breakdown"].values()) == pytest.approx(found["step_s"])
    assert 0.2 < found["mfu"] < 0.8
    assert [hurt["degree"] for hurt in found["hurt"]] == [30, 28]
    assert found["hurt"][0]["slowdown_band"]["low"] < found["hurt"][0]["slowdown"]
    text = perf_text(found)
    assert "pipeline bubble" in text
    assert "no measurement" in text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("tensor = 32", "tensor = 128\ncross_domain = false", "more than the 72 GPUs of a domain"),
        ("pipeline = 4", "pipeline = 3", "100 layers do not divide"),
        ('"gb200_nvl72"', '"gb20"', "unknown gpu 'gb20', known are a100_sxm"),
        ("length = 8192", "", "[batch]: length is missing"),
        ("gpus = 2048", "gpus = 2048\nnic = 50", "unknown key nic, did you mean nic_gb_per_s?"),
        ("gpus = 2048", "gpus = 1024", "32 x 4 x 1 x 16 = 2048, but [hardware] gpus = 1024"),
        ('"gpt_480b"', '"gpt"', "unknown model 'gpt'"),
        ("[batch]", "[bath]", "unknown section [bath]"),
        ("[30, 28]", "[33]", "degree 33: must be between 1 and [parallel] tensor = 32"),
        ("data = 16", "data = 16.0", "data = 16.0: must be a whole number"),
        ("data = 16", 'data = 16\nrecompute = "some"', "recompute = some: known are"),
        ("degrees", "cut = 3\ndegrees", "cut = 3: known are whole, finer"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(
    tmp_path: Path, old: str, new: str, line: str
) -> None:  # fmt: skip
    path = config(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadInput) as caught:
        load_config(path)
    text = str(caught.value)
    assert line in text
    assert text.count(str(path)) == 1
    assert "\n" not in text
    assert caught.value.exit_status == 2


def test_a_gpu_file_without_a_unit_is_refused(tmp_path: Path) -> None:
    gpu = tmp_path / "mine.toml"
    gpu.write_text('name = "mine"\nhbm = 80.0\n', encoding="utf-8")
    path = config(tmp_path, GOOD.replace('"gb200_nvl72"', f'"{gpu}"'))
    with pytest.raises(BadInput, match=r"unknown key hbm, did you mean hbm_gb\?"):
        load_config(path)


def test_a_search_finds_what_fits_and_says_why_not(tmp_path: Path) -> None:
    text = GOOD.replace('"gpt_480b"', '"llama3_70b"').replace("gpus = 2048", "gpus = 64")
    text = text[: text.index("[parallel]")].replace("gb200_nvl72", "h100_sxm")
    given = load_config(config(tmp_path, text), searching=True)
    told: list[tuple[int, int]] = []
    found = search(
        given.machine,
        given.work,
        spreads(given.machine, given.work, given.gpus, given.parallel),
        progress=lambda done, of: told.append((done, of)),
    )
    best = need_one(found, given.gpus)
    assert best.parallel.gpus == 64
    assert best.memory_bytes <= 80e9
    assert [c.step.total_s for c in found.best] == sorted(c.step.total_s for c in found.best)
    assert found.refused["domain"] > 0
    assert found.refused["memory"] > 0
    assert told[-1] == (found.examined, found.examined)
    shown = search_text(search_json(given.machine, given.work, found))
    assert "does not fit" in shown


def test_a_search_without_an_answer_says_so(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("[parallel]")].replace("gpus = 2048", "gpus = 1")
    given = load_config(config(tmp_path, text), searching=True)
    found = search(given.machine, given.work, spreads(given.machine, given.work, 1, given.parallel))
    assert not found.best
    with pytest.raises(BadInput, match="none of 10 spreads on 1 GPUs can run"):
        need_one(found, 1)
