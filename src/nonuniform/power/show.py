"""What `nonuniform rack` says: lines for people, and the sheet for those who buy.

In: the values of `rack_answer.answer`. Out: text, or Markdown. Does not know: where it goes.
"""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]
_WIDTHS = (6, 7, 24, 9, 9, 10, 9, 7, 10)
_HEADS = (
    "failed",
    "need",
    "W per GPU [band]",
    "granted",
    "lasts s",
    "headroom",
    "l/min GPU",
    "shelves",
    "max perf",
)


def rack_text(values: Values) -> str:
    needed = values["needed"]
    lines = [
        f"{values['rack']}: {values['domain_gpus']} GPUs, set point {values['nominal_w']:g} W of "
        f"{values['ceiling_w']:g} W, inlet {values['inlet_c']:g} degC",
        "",
        _line(_HEADS),
        *(_line(_cells(row)) for row in values["rows"]),
        "",
        f"headroom {_kw(needed['headroom_w'], needed['headroom_high_w'])} above the rack's "
        f"{values['rack_nominal_w'] / 1e3:.4g} kW" + _losses(values) + _word(values),
        f"ramp {needed['ramp_w_per_s']:.4g} W/s (at worst {needed['ramp_high_w_per_s']:.4g}) to be "
        f"there within {needed['reach_s']:g} s{_ramp(needed)}{_ramp_down(values)}",
        f"shelves {_count(needed['shelves'], needed['shelves_high'])}; flow "
        f"{_flow(needed['flow_l_per_min'], needed['flow_high_l_per_min'])}",
        f"boost ceiling {_ceiling(values['boost_ceiling'])}; lasts {_time(needed['lasts_s'])}",
        _binds_first(values["binds_first"]),
        *_shelf_lines(values["shelf_loss"]),
    ]
    lines += _too_hot(values)
    lines += [f"  {row['failed']} failed: {row['reason']}" for row in values["rows"][1:]]
    if values["assumed"]:
        lines.append(f"assumed, not published: {', '.join(values['assumed'])}")
    if values["note"]:
        lines.append(values["note"])
    return "\n".join(lines)


def spec_sheet(values: Values) -> str:
    """The procurement sheet, in Markdown."""
    needed = values["needed"]
    lines = [
        f"# Power and cooling for {values['rack']}",
        "",
        f"So that {needed['losses']} lost GPUs of a domain of {values['domain_gpus']} do not slow "
        f"its replica down: the survivors are raised from {values['nominal_w']:g} W to at most "
        f"{values['ceiling_w']:g} W each. A boost must last {_time(values['seconds'])} and be in "
        f"place within {needed['reach_s']:g} s. All of it at an inlet of "
        f"{values['inlet_c']:g} degC, which may rise by {values['inlet_step_c']:g} degC before "
        "anybody reads it.",
        "",
        "| requirement | figure | worst case of the band |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _requirements(values)),
        "",
        *(_shelf_lines(values["shelf_loss"])),
        _binds_first(values["binds_first"]),
        *_too_hot(values),
        "",
        "| sensor | period | why |",
        "|---|---|---|",
        *(f"| {s['what']} | {_period(s['period_s'])} | {s['why']} |" for s in values["sensors"]),
        "",
        f"Figures of power are {values['note']}." if values["note"] else "",
        f"Assumed, to be replaced by figures of the supplier: {', '.join(values['assumed'])}."
        if values["assumed"]
        else "",
        f"Sources: {values['source']}.",
    ]
    return "\n".join(lines) + "\n"


def _requirements(values: Values) -> list[tuple[str, str, str]]:
    """(what, figure, at the worst edge of the band)"""
    needed, top = values["needed"], values["boost_ceiling"]
    mark = " (extrapolated)" if top["performance"]["extrapolated"] else ""
    best, least = top["performance"]["value"], top["performance"]["low"]
    return [
        ("headroom of the rack, less what failed GPUs free", *_kws(needed, "headroom")),
        (f"freed by {needed['losses']} failed GPUs", f"{needed['freed_w'] / 1e3:.2f} kW", ""),
        (
            "headroom of one GPU",
            f"{needed['per_gpu_w']:.0f} W",
            f"{needed['per_gpu_high_w']:.0f} W",
        ),
        (f"whole rack, from a feed of {values['feed_w'] / 1e3:.2f} kW", *_kws(needed, "rack")),
        *_row_budget(needed["row"]),
        ("power shelves, spare ones included", *_pair(needed, "shelves", "", "", "not known")),
        ("ramp, up", *_pair(needed, "ramp", "_w_per_s", " W/s", "at once", ".0f")),
        ("ramp, down", *_pair(needed, "ramp_down", "_w_per_s", " W/s", "at once", ".0f")),
        (
            "flow of the domain, for good",
            *_pair(needed, "flow", "_l_per_min", " l/min", "no flow is enough", ".1f"),
        ),
        ("a boost lasts", *_pair(needed, "lasts", "_s", " s", "for good", ".4g")),
        ("boost ceiling of a GPU", f"{top['set_point_w']:.0f} W", ""),
        (f"performance there, nominal is 1{mark}", f"{best:.4f}", f"{least:.4f}"),
    ]


def _kws(needed: Values, name: str) -> tuple[str, str]:
    return f"{needed[f'{name}_w'] / 1e3:.2f} kW", f"{needed[f'{name}_high_w'] / 1e3:.2f} kW"


def _pair(
    needed: Values, name: str, rest: str, unit: str, none: str, how: str = ""
) -> tuple[str, str]:
    """The figure and its worst case, under `name`, perhaps `_high`, and `rest`."""
    figure, worst = (
        none if value is None else f"{value:{how}}{unit}"
        for value in (needed[name + rest], needed[f"{name}_high{rest}"])
    )
    return figure, worst


def _row_budget(row: Values) -> list[tuple[str, str, str]]:
    if row["racks"] == 1 and row["budget_w"] is None:
        return []
    there = "" if row["budget_w"] is None else f", of {row['budget_w'] / 1e3:.2f} kW"
    what = f"row of {row['racks']} racks, {row['boosted']} of them boosted{there}"
    return [(what, *_kws(row, "needed"))]


def _cells(row: Values) -> tuple[str, ...]:
    watts = row["needed_w"]
    mark = " *" if watts["extrapolated"] else ""
    flow, highest = row["flow_l_per_min_gpu"], row["ceiling"]["performance"]
    return (
        str(row["failed"]),
        f"{row['need']:.4f}",
        f"{watts['value']:.0f} [{watts['low']:.0f}, {watts['high']:.0f}]{mark}",
        _granted(row),
        "for good" if row["lasts_s"] is None else f"{row['lasts_s']:.4g}",
        f"{row['headroom_w'] / 1e3:+.2f} kW",
        "none" if flow is None else f"{flow:.3g}",
        _or(row["shelves"], ""),
        f"{highest['value']:.4f}" + (" *" if highest["extrapolated"] else ""),
    )


def _granted(row: Values) -> str:
    if not row["granted"]:
        return "no"
    return "yes" if row["granted_at_high"] else "perhaps"


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _word(values: Values) -> str:
    return ", extrapolated (*)" if values["note"] else ""


def _losses(values: Values) -> str:
    possible, wished = values["needed"]["losses"], values["survive"]
    if possible == wished:
        return f", for {wished} losses"
    return f", for {possible} of {wished} losses: the GPU's ceiling allows no more"


def _kw(value: float, high: float) -> str:
    return f"{value / 1e3:.3g} kW (at worst {high / 1e3:.3g})"


def _ramp(needed: Values) -> str:
    return "" if needed["ramp_s"] is None else f"; the rack takes {needed['ramp_s']:.3g} s"


def _ramp_down(values: Values) -> str:
    """Only where lost shelves ask for it."""
    loss = values["shelf_loss"]
    if loss is None or not loss["needed"] or loss["rack_down"]:
        return ""
    pace = loss["w_per_s"]
    return "; down at once" if pace is None else f"; down at {pace:.4g} W/s"


def _count(shelves: int | None, high: int | None) -> str:
    return "not known" if shelves is None else f"{shelves} (at worst {high})"


def _flow(flow: float | None, high: float | None) -> str:
    if flow is None:
        return "none is enough at this inlet"
    worst = "none is enough" if high is None else f"{high:.4g}"
    return f"{flow:.4g} l/min for the domain (at worst {worst})"


def _ceiling(top: Values) -> str:
    p = top["performance"]
    said = f"{top['set_point_w']:.4g} W, performance {p['value']:.4f} "
    said += f"[{p['low']:.4f}, {p['high']:.4f}]"
    return said + (" extrapolated" if p["extrapolated"] else "")


def _time(seconds: float | None) -> str:
    return "for good" if seconds is None else f"{seconds:.4g} s"


def _too_hot(values: Values) -> list[str]:
    """Supply always carries the nominal set point: only heat refuses it."""
    healthy = values["rows"][0]
    if healthy["granted"]:
        return []
    return [f"nominal is already too hot: {healthy['reason'].removeprefix('temperature: ')}"]


def _period(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds else "at once"


def _or(value: float | None, how: str = "") -> str:
    return "not known" if value is None else f"{value:{how}}"


def _binds_first(first: Values) -> str:
    where = (
        f"binds first: {first['limit']}, with {first['failed']} GPUs lost"
        if first["reached"]
        else f"nothing binds up to {first['failed']} lost GPUs; next is {first['limit']}"
    )
    return f"{where}, at {first['set_point_w']:.4g} W per GPU"


def _shelf_lines(loss: Values | None) -> list[str]:
    if loss is None:
        return []
    lost = f"{loss['shelves_lost']} shelves lost at {loss['from_w']:.4g} W"
    if not loss["needed"]:
        return [f"{lost}: the set point may stay"]
    left = f"{loss['set_point_w']:.4g} W per GPU"
    if loss["rack_down"]:
        return [f"{lost}: the rack goes down, {left} are less than idle_w = {loss['idle_w']:g}"]
    soon = f"within {loss['within_s']:g} s" if loss["within_s"] else "at once"
    if not loss["by_supervisor"]:
        soon += ", sooner than a supervisor that looks once a second: by hardware alone"
    return [f"{lost}: down to {left} {soon}"]
