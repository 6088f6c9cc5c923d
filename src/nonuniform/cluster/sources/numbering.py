"""Names of nodes -> numbers of GPUs in a fleet.

In: failures by node name and GPU index, and how names become numbers. Out: the same failures with
(first_gpu, gpus); what the fleet does not have is a wrong row. Knows nothing of time but its order.

A log names only nodes that failed. Where its order of names is no order of places, neighbours in
the fleet are an assumption, and with domains of several nodes it matters: that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import Findings, counted
from nonuniform.cluster.sources.log_format import LogFormat, Nodes
from nonuniform.errors import BadInput


def on_the_fleet(
    failures: pl.DataFrame, form: LogFormat, fleet: Fleet, findings: Findings
) -> pl.DataFrame:
    """With first_gpu and gpus."""
    if failures["node"].null_count() == failures.height and failures.height:
        return _by_number(failures, fleet, findings)
    numbers = _numbers(failures, form.nodes, fleet, findings)
    failures = failures.with_columns(
        number=pl.col("node").replace_strict(
            list(numbers), list(numbers.values()), default=None, return_dtype=pl.Int64
        )
    )
    known = "on the list" if form.nodes.names else f"among the {fleet.nodes} of the fleet"
    failures = findings.without(
        failures, pl.col("number").is_null(), f"an unknown node (not {known})", "node"
    )
    failures = _indexed(failures, form, fleet, findings)
    first = pl.col("number") * fleet.node + pl.col("gpu").fill_null(0)
    whole = pl.min_horizontal(pl.lit(fleet.node), fleet.gpus - first)
    failures = failures.with_columns(
        first_gpu=first,
        gpus=pl.when(pl.col("gpu").is_null()).then(whole).otherwise(1).cast(pl.Int64),
    )
    return _within(failures, fleet, findings)


def need_of_expansion(form: LogFormat, names_gpus: bool) -> None:
    """Where no GPU is named, a person must say what the failure of a node means."""
    if not names_gpus and not form.expand:
        raise BadInput(
            'log: it names nodes and no GPUs: say expand = "node" (all GPUs of a node are down) '
            'or "one-gpu"'
        )


def _by_number(failures: pl.DataFrame, fleet: Fleet, findings: Findings) -> pl.DataFrame:
    numbered = failures.with_columns(first_gpu=pl.col("gpu"), gpus=pl.lit(1, pl.Int64))
    return _within(numbered, fleet, findings)


def _within(failures: pl.DataFrame, fleet: Fleet, findings: Findings) -> pl.DataFrame:
    beyond = pl.col("first_gpu") >= fleet.gpus
    kind = f"an unknown GPU (not among the {fleet.gpus} of the fleet)"
    return findings.without(failures, beyond, kind, "first_gpu")


def _indexed(
    failures: pl.DataFrame, form: LogFormat, fleet: Fleet, findings: Findings
) -> pl.DataFrame:
    """With a GPU index wherever one GPU is meant; null: the whole node."""
    kind = f"an unknown GPU (a node has {fleet.node})"
    failures = findings.without(failures, pl.col("gpu") >= fleet.node, kind, "gpu")
    nameless = failures["gpu"].null_count()
    if not nameless:
        return failures
    need_of_expansion(form, names_gpus=False)
    rows = f"{nameless} of {counted(failures.height, 'failure')}"
    if form.expand == "node":
        findings.assume(f"{rows} take all {fleet.node} GPUs of the node (expand)")
        return failures
    findings.assume(f"{rows} take one GPU of the node, the next one each time (expand)")
    turn = pl.int_range(pl.len()).over("number") % fleet.node
    return failures.sort("start", nulls_last=False, maintain_order=True).with_columns(
        gpu=pl.col("gpu").fill_null(turn)
    )


def _numbers(
    failures: pl.DataFrame, nodes: Nodes, fleet: Fleet, findings: Findings
) -> Mapping[str, int]:
    if nodes.names:
        return _listed(nodes.names, fleet)
    names = sorted(failures["node"].unique().to_list())
    if nodes.order == "number":
        digits = failures["node"].unique().sort().str.extract(r"(\d{1,9})\D*$").cast(pl.Int64)
        pairs = zip(names, digits.to_list(), strict=True)
        return _said(
            {name: n for name, n in pairs if n is not None and n < fleet.nodes}, findings, nodes
        )
    if nodes.order == "first-failure":
        first = failures.group_by("node").agg(pl.col("start").min().fill_null(float("-inf")))
        names = first.sort("start", "node")["node"].to_list()
    places: Sequence[int] = range(fleet.nodes)
    if nodes.order == "random":
        places = np.random.default_rng(nodes.seed).permutation(fleet.nodes).tolist()
    seen = f"{counted(len(names), 'node')} of {fleet.nodes} are in the log"
    findings.assume(f"{seen}, numbered by {_ORDERS[nodes.order]}; the others never fail")
    return dict(zip(names, places, strict=False))


_ORDERS = {
    "first-failure": "first failure, so that those that fail early are neighbours",
    "name": "name, so that those that fail are neighbours",
    "random": "chance (nodes.seed)",
}


def _listed(names: Sequence[str], fleet: Fleet) -> Mapping[str, int]:
    if len(names) > fleet.nodes:
        raise BadInput(
            f"log: nodes.names lists {len(names)} nodes, the fleet has {fleet.nodes} "
            f"({fleet.gpus} GPUs, {fleet.node} a node)"
        )
    return {name: number for number, name in enumerate(names)}


def _said(numbers: dict[str, int], findings: Findings, nodes: Nodes) -> Mapping[str, int]:
    twice = len(numbers) - len(set(numbers.values()))
    if twice:
        raise BadInput(
            f'log: nodes.order = "{nodes.order}": {counted(twice, "node name")} with the number of '
            "another one; list nodes.names"
        )
    findings.assume("the last digits of a node's name are its number, from 0")
    return numbers
