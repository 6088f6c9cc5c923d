"""A process whose log cannot be written goes on."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from nonuniform.train.alarm import Alarm
from nonuniform.train.mutter import mutter, mutter_exception


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_words_reach_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    mutter("something")
    try:
        raise ValueError("wrong")
    except ValueError:
        mutter_exception()
    said = capsys.readouterr().err
    assert said.startswith("something\nTraceback")
    assert said.endswith("ValueError: wrong\n")


def test_a_full_disk_ends_nobody_who_lost_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    mutter("something")
    broken = RuntimeError("connection closed by peer")
    assert Alarm(10.0, grace_s=0.01).gone(broken) is broken
