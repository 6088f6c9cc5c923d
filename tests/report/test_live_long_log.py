"""The first look at a log that is long already: answered at once, read in blocks."""

from __future__ import annotations

import json
import time
from pathlib import Path

from nonuniform.report.follow import BLOCK_BYTES, LOOK_S, Asked, Follower, Tail

LONG = 100_000
# One look and one block, on a machine that has other things to do.
BOUND_S = LOOK_S + 2.0


def row(number: int) -> str:
    said = {"step": number, "loss": 1.0 / number, "tokens": 768, "time_s": number * 0.2}
    shares = {"degrees": [4, 4], "batch_shares": [6, 6], "sample_ids": list(range(12))}
    return json.dumps({**said, **shares}) + "\n"


def test_a_long_log_is_answered_at_once_and_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text("".join(map(row, range(1, LONG + 1))))
    (tmp_path / "summary.json").write_text('{"status": "done"}')
    follower, asked, said, longest_s = Follower(tmp_path, LONG), Asked(), [], 0.0
    for _ in range(500):
        start_s = time.monotonic()
        news = follower.news(asked)
        longest_s = max(longest_s, time.monotonic() - start_s)
        said.append(news["status"])
        last = news["points"][-1][0] if news["points"] else asked.step
        asked = Asked(last, news["told"], news["epoch"], news["thinned"])
        if not news["more"]:
            break
    assert said[0] == "reading"
    assert said[-1] == "done"
    assert asked.step == LONG
    assert longest_s < BOUND_S


def test_no_more_than_a_block_is_in_memory(tmp_path: Path) -> None:
    """Each line comes once, also where a block ends within it, and one that is longer than that."""
    path = tmp_path / "log"
    words = [{"n": n, "x": "y" * (n % 700)} for n in range(3000)]
    words[1500]["x"] = "z" * (3 * BLOCK_BYTES)
    path.write_text("".join(json.dumps(word) + "\n" for word in words) + '{"n": 30')
    tail, found, most = Tail(path), [], 0
    for _ in range(100):
        rows = tail.new_rows()
        most = max(most, sum(len(row["x"]) for row in rows if row["n"] != 1500))
        found += rows
        if not tail.more:
            break
    assert found == words
    assert most <= BLOCK_BYTES
    assert tail.new_rows() == []
    with path.open("a") as more:
        more.write('00, "x": ""}\n')
    assert [row["n"] for row in tail.new_rows()] == [3000]


def test_a_line_without_end_does_not_keep_it_reading(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "x": "' + "y" * (2 * BLOCK_BYTES))
    news = Follower(tmp_path).news(Asked())
    assert (news["status"], news["more"], news["points"]) == ("running", False, [])
