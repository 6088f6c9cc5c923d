"""What is up in the long run, without drawing anything.

In: rates, mean repair times, counts. Out: shares and times in closed form, which a simulation
must come to as well. DESIGN "Two arrows". Knows nothing of jobs: a domain is healthy if all its
GPUs are.

Two answers to "how many domains are healthy at a failed share of 0.1 %": *binomial*, each GPU
being down by itself with that chance, so that the number of failed GPUs varies; and
*hypergeometric*, with exactly so many of the fleet's GPUs failed, anywhere. A snapshot with a
known count is the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.rates import Cause
from nonuniform.cluster.sources.repair import Repair
from nonuniform.errors import BadInput


def steady_share(rate_per_gpu_day: float, repair: Repair) -> float:
    """Repairs under way per GPU: rate x mean repair, whatever the distribution of repairs. It is
    the failed share as long as hardly any GPU is struck while down; see `down_share`."""
    if not 0 <= rate_per_gpu_day < math.inf:
        raise BadInput(f"failures: rate_per_gpu_day = {rate_per_gpu_day:g}, expected 0 or more")
    return rate_per_gpu_day * repair.mean_h / 24


def steady_gpus(fleet: Fleet, causes: Iterable[Cause]) -> float:
    """GPUs under repair in the mean; one that two failures hold down counts twice."""
    return math.fsum(
        cause.failures_per_day(fleet) * cause.repair.mean_h / 24 * cause.mean_block(fleet)
        for cause in causes
    )


def down_share(under_way_per_gpu: float) -> float:
    """Share of GPUs that at least one repair holds down, where failures strike all alike: the
    number of repairs that hold a GPU down is Poisson, and 1 - exp(-mean) is what is not zero."""
    return -math.expm1(-under_way_per_gpu)


def mttf_h(nodes: int, rate_per_1000_node_days: float) -> float:
    """Mean time to the next failure of any of so many nodes."""
    if nodes < 1 or not 0 <= rate_per_1000_node_days < math.inf:
        raise BadInput(
            f"failures: {nodes} nodes at {rate_per_1000_node_days:g} failures per 1000 node-days "
            "have no mean time to failure, expected 1 node or more and a rate of 0 or more"
        )
    if rate_per_1000_node_days == 0:
        return math.inf
    return 24 * 1000 / (nodes * rate_per_1000_node_days)


def healthy_domain_share(domain: int, failed_share: float) -> float:
    """Binomial: chance that a domain is whole, each GPU being down with chance `failed_share`."""
    if domain < 1 or not 0 <= failed_share <= 1:
        raise BadInput(
            f"cluster: domain = {domain} and a failed share of {failed_share:g}, expected 1 or "
            "more and 0 to 1"
        )
    return float((1 - failed_share) ** domain)


def healthy_domain_share_of(domain: int, gpus: int, failed: int) -> float:
    """Hypergeometric: chance that a domain is whole with exactly `failed` of `gpus` GPUs down."""
    if not (1 <= domain <= gpus and 0 <= failed <= gpus):
        raise BadInput(
            f"cluster: domain = {domain} and {failed} failed of gpus = {gpus}, expected at most "
            "all of them"
        )
    if domain + failed > gpus:
        return 0.0
    # Both orders of choosing give the same product; the shorter one is computed.
    few, many = sorted((domain, failed))
    return math.prod((gpus - many - i) / (gpus - i) for i in range(few))
