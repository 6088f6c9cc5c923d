"""Which files there are, and who reads them.

In: the arguments of `nonuniform plan`. Out: `Understood`. DESIGN "Outside contract". Says what is
missing or given twice; everything else the readers say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nonuniform.errors import BadInput
from nonuniform.planner.described import Wanted, of_jobs
from nonuniform.planner.understood import Understood, of_scenario

if TYPE_CHECKING:
    from nonuniform.planner.run import PlanArgs


def understand(args: PlanArgs) -> Understood:
    """One line for what does not go together."""
    beside = {
        "--job": args.jobs, "--cluster": args.cluster, "--gpus": args.gpus,
        "--log": args.log, "--log-gpus": args.log_gpus, "--failures": args.failures,
    }  # fmt: skip
    given = [flag for flag, value in beside.items() if value]
    if args.scenario is not None:
        if given:
            raise BadInput(f"{given[0]}: cannot be together with {args.scenario}; choose one")
        return of_scenario(args.scenario, args.skip_bad_rows)
    if not args.jobs:
        raise BadInput("plan: give SCENARIO.toml, or --job with --cluster")
    return of_jobs(
        Wanted(
            args.jobs,
            args.cluster,
            args.gpus,
            args.log,
            args.failures,
            args.skip_bad_rows,
            args.log_gpus,
        )
    )
