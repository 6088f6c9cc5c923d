"""The picture: it is drawn for every kind of run, and its absence is no failure."""

from __future__ import annotations

import builtins
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nonuniform.view.picture import HINT, draw_run


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
