"""The cluster, job, failures and policies that the paper's figures are computed again with.

Out: constants. What the paper's text says: 32,768 GPUs, domains of 32, Llama 3's rate of failures,
78% of them hardware. What it does not say in its text and is chosen here: pipelines of 8 stages, 8
sequences a replica, and how many of them are left at a reduced degree.
"""

from __future__ import annotations

from dataclasses import replace

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import Catalog, load_catalog
from nonuniform.cluster.sources.repair import fixed
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions

FLEET = Fleet(32_768, 32)
JOB = TrainingJob(32, stages=8, sequences_per_replica=8)
DEEP_JOB = replace(JOB, layers=100)
"""100 layers on 8 stages: four stages of 13 and four of 12."""

DAY_H = 24.0
TRACE_H = 15 * DAY_H
YEAR_H = 365 * DAY_H
MANY_FAILED = 0.001
MOST_FAILED = 0.004

DP_DROP = PolicyOptions("dp-drop")
NTP = PolicyOptions("ntp", degrees=(32, 30, 28), min_degree=28, batch_at=((30, 7), (28, 6)))
NTP_PW = replace(NTP, kind="ntp-pw")
POLICIES = {"dp-drop": DP_DROP, "ntp": NTP, "ntp-pw": NTP_PW}

NTP_TOKENS = replace(NTP, grain="token", batch_at=())
ANY = PolicyOptions("ntp")
TOKENS = replace(ANY, grain="token")
ONE_DEGREE = replace(NTP, one_degree=True)
LOW_FLOOR = replace(ANY, min_degree=16)
VARIANTS = {
    "dp-drop": DP_DROP,
    "dp-drop, not packed": replace(DP_DROP, packing="none"),
    "dp-drop, batch fixed": replace(DP_DROP, batch="fixed"),
    "ntp, degrees 32, 30, 28": NTP,
    "ntp, degrees 32, 30, 28, not packed": replace(NTP, packing="none"),
    "ntp, degrees 32, 30, 28, one reduced degree for the job": ONE_DEGREE,
    "ntp, degrees 32, 30, 28, tokens": NTP_TOKENS,
    "ntp, any degree, whole sequences": ANY,
    "ntp, any degree, whole sequences, batch fixed": replace(ANY, batch="fixed"),
    "ntp, any degree, tokens": TOKENS,
    "ntp, any degree, tokens, not packed": replace(TOKENS, packing="none"),
    "ntp-pw, any degree from 28": PolicyOptions("ntp-pw", min_degree=28),
}
SLACK_VARIANTS = {
    "ntp, any degree, whole sequences, 100 layers, packed": ANY,
    "ntp, any degree, whole sequences, 100 layers, spread": replace(ANY, packing="spread"),
    "ntp, any degree, tokens, 100 layers, packed": TOKENS,
    "ntp, any degree, tokens, 100 layers, spread": replace(TOKENS, packing="spread"),
}


def with_batch(options: PolicyOptions, batch_at: tuple[tuple[int, int], ...]) -> PolicyOptions:
    """Other sequences at a reduced degree."""
    return replace(options, batch_at=batch_at)


def failures(hardware_h: float = 120.0, software_h: float = 3.0) -> Catalog:
    """The paper's failures, with these times of repair."""
    published = load_catalog("ntp-paper")
    repaired = published.with_repair("hardware", fixed(hardware_h))
    return repaired.with_repair("software", fixed(software_h))


def with_blast(catalog: Catalog, gpus: int) -> Catalog:
    """As many failures, each taking so many GPUs."""
    causes = (replace(cause, blast_gpus=gpus) for cause in catalog.causes)
    return replace(catalog, causes=tuple(causes))
