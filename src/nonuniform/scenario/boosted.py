"""What share of domains is ever boosted in a scenario, and what that costs and saves.

In: a RACK.toml, a SCENARIO file. Out: plain values over its seeds, and text. DESIGN "Two arrows":
the same histories of failures as a simulation. Knows nothing of watts: `power.energy` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.power.energy import Integers, Spent, energy
from nonuniform.power.rack_file import RackFile, load_rack_file
from nonuniform.scenario.build import fleet_of, log_source, model_source, seeds_of
from nonuniform.scenario.read import load_scenario
from nonuniform.sim.monte_carlo import Source
from nonuniform.sim.timeline import changes

MOST_SEEDS = 10  # a history has thousands of domains: more seeds change the third figure
HOUR_S, JOULES_PER_MWH = 3600.0, 3.6e9


def boosted(rack_path: Path, scenario_path: Path) -> dict[str, Any]:
    """Means over the seeds, with the lowest and the highest of them."""
    rack = load_rack_file(rack_path)
    scenario = load_scenario(scenario_path)
    fleet = fleet_of(scenario)
    gpus = rack.entry.rack.domain_gpus
    if fleet.domain != gpus:
        raise BadInput(
            f"{scenario_path}: [cluster] domain = {fleet.domain}, but the rack of {rack_path} has "
            f"domains of {gpus} GPUs"
        )
    from_log = scenario.failures.log is not None
    source: Source = log_source(scenario, False)[0] if from_log else model_source(scenario)
    first, count = scenario.run.seed, min(seeds_of(scenario), MOST_SEEDS)
    traces = [source(seed) for seed in range(first, first + count)]
    runs = [spent_in(rack, fleet, trace) for trace in traces]
    return {
        "seeds": count,
        "days": traces[0].hours / 24,
        "domains": fleet.domains,
        "extrapolated": any(run.extrapolated for run in runs),
        **{key: _over(runs, key) for key in ("share_ever_boosted", "share_of_time_boosted")},
        "energy_mwh": {
            "mean": _mean(runs, "energy_j") / JOULES_PER_MWH,
            "low": _mean(runs, "energy_low_j") / JOULES_PER_MWH,
            "high": _mean(runs, "energy_high_j") / JOULES_PER_MWH,
        },
        "saved_share": _over(runs, "saved_share"),
        "saved_gpu_hours": _mean(runs, "saved_domain_s") / HOUR_S * gpus,
        "refused_domain_hours": _mean(runs, "refused_domain_s") / HOUR_S,
        "energy_times_usual": _mean(runs, "times_usual"),
    }


def spent_in(rack: RackFile, fleet: Fleet, trace: Trace) -> Spent:
    times_s, lost = losses(trace, fleet)
    entry = rack.entry
    return energy(times_s, lost, trace.hours * HOUR_S, entry.rack, entry.cooling, rack.need)


def losses(trace: Trace, fleet: Fleet) -> tuple[np.ndarray[Any, np.dtype[np.float64]], Integers]:
    """(seconds, row i: lost GPUs of every domain from `seconds[i]` on)."""
    found = changes(trace, fleet)
    moments, row = np.unique(np.append(0.0, found.time_h), return_inverse=True)
    delta = np.zeros((len(moments), fleet.domains), np.int16)
    np.add.at(delta, (row[1:], found.domain), (found.lost - found.before).astype(np.int16))
    inside = moments < trace.hours
    return moments[inside] * HOUR_S, np.cumsum(delta, axis=0, dtype=np.int16)[inside]


def boosted_text(values: dict[str, Any]) -> str:
    ever, time, saved = (
        values[key] for key in ("share_ever_boosted", "share_of_time_boosted", "saved_share")
    )
    energy_, band = values["energy_mwh"], " (extrapolated)" if values["extrapolated"] else ""
    return "\n".join(
        (
            f"in {values['days']:.0f} days of {values['domains']:,} domains, {values['seeds']} "
            "histories:",
            f"  ever boosted        {ever['mean']:.2%} of the domains "
            f"[{ever['low']:.2%}, {ever['high']:.2%}]",
            f"  boosted             {time['mean']:.3%} of the time",
            f"  energy above        {energy_['mean']:,.1f} MWh "
            f"[{energy_['low']:,.1f}, {energy_['high']:,.1f}]{band}",
            f"  throughput saved    {saved['mean']:.3%}, {values['saved_gpu_hours']:,.0f} "
            f"GPU-hours, at {values['energy_times_usual']:.2f} x the energy that healthy GPUs "
            "need for them",
            f"  not to be boosted   {values['refused_domain_hours']:,.0f} hours of hurt domains",
        )
    )


def _mean(runs: list[Spent], key: str) -> float:
    return float(np.mean([getattr(run, key) for run in runs]))


def _over(runs: list[Spent], key: str) -> dict[str, float]:
    values = [float(getattr(run, key)) for run in runs]
    return {"mean": float(np.mean(values)), "low": min(values), "high": max(values)}
