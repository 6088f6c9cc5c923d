"""The picture: it is drawn for every kind of run, and its absence is no failure."""

from __future__ import annotations

import builtins
import json
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nonuniform.view.picture import HINT, _draw_degrees, draw_run
from nonuniform.view.records import read_run


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.fixture
def two_runs(rehearsal: ModuleType, tmp_path: Path) -> list[tuple[str, Path]]:
    hurt = rehearsal.write(rehearsal.Rehearsal(noise=1e-6).calls(), tmp_path / "hurt")
    calm = rehearsal.write(rehearsal.Rehearsal(incidents=()).calls(), tmp_path / "calm")
    return [("with failures", hurt), ("uninterrupted", calm)]


def test_two_runs_get_a_panel_more_than_one(
    two_runs: list[tuple[str, Path]], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    assert draw_run(two_runs, tmp_path / "new" / "two.png") is None
    assert draw_run(two_runs[:1], tmp_path / "one.png") is None
    two, one = png_size(tmp_path / "new" / "two.png"), png_size(tmp_path / "one.png")
    assert two[0] == one[0] >= 1000
    assert two[1] > one[1]


def test_odd_runs_are_drawn_too(rehearsal: ModuleType, tmp_path: Path) -> None:
    """Many replicas; equal to the last bit; ended after the first step; not a number."""
    pytest.importorskip("matplotlib")
    lost = [rehearsal.Incident("failed", gpu, 5) for gpu in ("3/7", "3/9", "11/70")]
    big = rehearsal.Rehearsal(20, 16, 72, 64, sequences=512, incidents=lost)
    many = rehearsal.write(big.calls(), tmp_path / "many")
    short = rehearsal.write(rehearsal.Rehearsal(1, incidents=()).calls(), tmp_path / "short")
    calls = rehearsal.Rehearsal(5, incidents=()).calls()
    calls[3][1]["loss"] = None
    broken = rehearsal.write(calls, tmp_path / "broken")
    for folder in (many, short, broken):
        assert draw_run([("one", folder), ("same", folder)], tmp_path / "odd.png") is None


def test_a_dissolved_replica_is_drawn_at_degree_0(rehearsal: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lost = [rehearsal.Incident("failed", f"1/{index}", 5) for index in range(3)]
    folder = rehearsal.write(rehearsal.Rehearsal(12, incidents=lost).calls(), tmp_path / "run")
    assert json.loads((folder / "steps.jsonl").read_text().splitlines()[6])["degrees"] == [4, 0]
    from matplotlib.figure import Figure

    panel = Figure().subplots()
    _draw_degrees(panel, read_run(folder))
    (line,) = [line for line in panel.get_lines() if line.get_label() == "replica 1"]
    assert [round(y) for y in line.get_ydata()] == [4] * 4 + [0] * 8


@pytest.mark.parametrize("replicas", [3, 9])
def test_lines_that_name_fewer_replicas_are_drawn(
    rehearsal: ModuleType, tmp_path: Path, replicas: int
) -> None:
    pytest.importorskip("matplotlib")
    calls = rehearsal.Rehearsal(6, replicas, sequences=18, incidents=()).calls()
    for name, record in calls:
        if name == "on_step" and record["step"] > 3:
            del record["degrees"][1:]
    folder = rehearsal.write(calls, tmp_path / "short")
    assert draw_run([("one", folder)], tmp_path / "short.png") is None


def test_without_matplotlib_there_is_a_hint(
    two_runs: list[tuple[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert draw_run(two_runs, tmp_path / "none.png") == HINT
    assert "\n" not in HINT
    assert not (tmp_path / "none.png").exists()
