"""The comparison as rows and as a page.

In: nothing, or rows. Out: rows, or Markdown. Knows nothing of how the figures come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from nonuniform.sim.paper import compared
from nonuniform.sim.paper.compared import Row

PARTS = (
    compared.availability,
    compared.share_of_time,
    compared.losses,
    compared.spares,
    compared.rate_and_blast,
    compared.year,
    compared.amplification,
    compared.others,
)

TITLE = "# The paper's figures, computed again"
INTRODUCTION = """\
Made by `nonuniform paper --markdown docs/paper-results.md`; a test compares this page with what the
command prints.

The paper is [arXiv 2504.06095](https://arxiv.org/abs/2504.06095). From it: 32,768 GPUs in domains
of 32, failures at the rate of Llama 3 (4.736e-4 per GPU-day), 78% of them hardware repaired in 5
(or 3) days, 22% software repaired in 3 hours. Assumed here: one GPU a failure; replicas of 8
domains with 8 sequences each; `ntp` knows the degrees 32, 30 and 28 with 8, 7 and 6 sequences and
drops a domain below 28; the step time stays and the batch shrinks; hurt domains are packed into
as few replicas as possible; transitions cost nothing. Rows that assume otherwise say so. No
constant was chosen to meet a figure. A dash says that no number of the paper is known for that
row."""


def rows() -> list[Row]:
    """All of them; takes some seconds."""
    return [row for part in PARTS for row in part()]


def markdown(table: Sequence[Row]) -> str:
    """One table for each section."""
    blocks = [TITLE, INTRODUCTION]
    for section, members in groupby(table, key=lambda row: row.section):
        blocks.append(f"## {section}")
        lines = ["| what | paper | ours | assumption |", "|---|---|---|---|"]
        lines += [f"| {r.what} | {r.paper} | {r.ours} | {r.assumption} |" for r in members]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
