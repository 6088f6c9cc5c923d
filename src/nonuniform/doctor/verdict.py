"""One finding about this machine, and what all of them mean for the exit status."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from nonuniform.errors import RunFailed


class Status(enum.StrEnum):
    """`warn`: runs work, but slower or smaller; `fail`: a run would not work here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """`found` is the measured value, `advice` what to do; an `ok` needs no advice."""

    name: str
    status: Status
    found: str
    advice: str = ""


def exit_status(checks: Iterable[Check]) -> int:
    """A machine that fails a check is one on which a run could not go on."""
    failed = any(check.status is Status.FAIL for check in checks)
    return RunFailed.exit_status if failed else 0
