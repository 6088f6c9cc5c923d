"""The words that decide a transaction; each is written once, by compare-and-set."""

from __future__ import annotations

UNDECIDED = ""
COMMIT, COMMIT_AND_REGROUP, ABORT = "commit", "commit, then regroup", "abort"


def is_commit(outcome: str) -> bool:
    return outcome in (COMMIT, COMMIT_AND_REGROUP)
