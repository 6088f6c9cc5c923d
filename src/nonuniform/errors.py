"""The exceptions that people may meet, as one tree.

NonuniformError
├── BadInput   a file, flag or value is wrong: one line, exit status 2
└── RunFailed  the run could not go on: the reason, exit status 3
"""

from __future__ import annotations


class NonuniformError(Exception):
    """Base of everything this package raises on purpose."""

    exit_status = 1


class BadInput(NonuniformError):
    """The input is wrong; the message names file, key and the numbers that disagree."""

    exit_status = 2


class RunFailed(NonuniformError):
    """The run could not go on; the message is the reason."""

    exit_status = 3


class StateWrong(RunFailed):
    """What the ranks hold is not what it should be: nothing of it may be kept."""
