"""A real run that is resumed, and resumed once more when it is done: what its summary says."""

from __future__ import annotations

from typing import Any

SAVING = {"every": 5, "keep": 3, "final": True}


def test_the_summary_tells_the_whole_run_and_the_session_apart(lab: Any) -> None:
    job = lab.job(checkpoint=SAVING)
    first = lab.train(job, fails=["1/2@3"], returns=["1/2@5"], options=["--steps", "8"])
    assert first.status == 0, first.stderr
    assert (first.summary["resumed_from"], first.summary["sessions"]) == (None, 1)
    second = lab.train(
        job, out=first.folder, fails=["0/1@10"], options=["--resume", "--steps", "14"]
    )
    assert second.status == 0, second.stderr
    summary, session = second.summary, second.summary["session"]
    assert (summary["steps"], summary["failures"], summary["resumed_from"]) == (14, 2, 8)
    assert (session["steps"], session["failures"]) == (6, 1)
    assert summary["loss_first"] == second.steps[0]["loss"]
    assert summary["loss_last"] == second.steps[-1]["loss"]
    (resumed,) = second.of_kind("resumed")
    assert (resumed["step"], resumed["steps_lost"]) == (8, 0)
    # Nothing is left to do: the summary stays that of the run.
    third = lab.train(job, out=first.folder, options=["--resume", "--steps", "14"])
    assert third.status == 0, third.stderr
    for key in ("steps", "loss_first", "loss_last", "failures", "returns", "generations"):
        assert third.summary[key] == summary[key] is not None
    assert (third.summary["sessions"], third.summary["session"]["steps"]) == (3, 0)
