"""The words that decide a transaction."""

from __future__ import annotations

from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP, UNDECIDED, is_commit


def test_both_commits_are_one_and_nothing_else_is() -> None:
    assert is_commit(COMMIT)
    assert is_commit(COMMIT_AND_REGROUP)
    for word in (ABORT, UNDECIDED, "Commit", "commit "):
        assert not is_commit(word)


def test_no_two_words_are_the_same() -> None:
    assert len({UNDECIDED, ABORT, COMMIT, COMMIT_AND_REGROUP}) == 4
    assert UNDECIDED == "", "what compare-and-set expects of a key that is not there"
