"""How hot a GPU gets, and when.

In: how it is cooled, its temperatures, its watts, seconds. Out: temperatures, and how long until a
limit. Three masses in a row, each with its heat capacity: junction, plate (cold plate or heat
sink), coolant, which is taken as mixed, so that it is as warm as what leaves it. Between them
resistances; coolant flows in at the inlet temperature:

    C_j dT_j/dt = watts - (T_j - T_p) / R_j
    C_p dT_p/dt = (T_j - T_p) / R_j - (T_p - T_c) / R_p
    C_c dT_c/dt = (T_p - T_c) / R_p - flow (T_c - T_in)

Constant watts and inlet are solved exactly: scaled by the root of the capacities the matrix is
symmetric, so its exponential is that of three real rates. DESIGN "Policies" (ntp-pw).

Does not know: memory temperatures, leakage that grows with heat, a cooling unit that warms up, or
GPUs that warm each other's coolant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nonuniform.errors import BadInput
from nonuniform.power.exponentials import first_zero, turning_points

Array = NDArray[np.float64]
Kind = Literal["liquid", "air"]
JOULES_PER_L_C: dict[str, float] = {"liquid": 4180.0, "air": 1.16}
"""Water, and air at about 30 degC: 0.998 kg/l x 4,186 J/(kg K); 1.16 g/l x 1.006 J/(g K)."""
_SPREAD = 0.8  # of turbulent flow: the film's resistance goes by flow to the power -0.8


@dataclass(frozen=True)
class Cooling:
    """Of one GPU, the worst cooled one. `r_plate_c_per_w` holds at `rated_flow_l_per_min`; less
    flow makes it worse, more is not reckoned to make it better. `throttle_c` is where the GPU slows
    itself down, `shutdown_c` where it stops. `inlet_step_c`: rise of the inlet that must do no harm
    before the next reading."""

    kind: Kind
    inlet_c: float
    flow_l_per_min: float
    rated_flow_l_per_min: float
    r_junction_c_per_w: float
    r_plate_c_per_w: float
    junction_j_per_c: float
    plate_j_per_c: float
    coolant_j_per_c: float
    throttle_c: float
    shutdown_c: float
    inlet_step_c: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in JOULES_PER_L_C:
            raise BadInput(f"kind = {self.kind!r}: must be liquid or air")
        for key in _ABOVE_0:
            value = getattr(self, key)
            if not _LEAST <= value <= 1 / _LEAST:
                raise BadInput(f"{key} = {value}: must be from {_LEAST:g} to {1 / _LEAST:g}")
        if not (math.isfinite(self.inlet_step_c) and self.inlet_step_c >= 0):
            raise BadInput(f"inlet_step_c = {self.inlet_step_c}: must be 0 or more and finite")
        if not 0 < self.throttle_c < self.shutdown_c <= 150:
            raise BadInput(
                f"throttle_c = {self.throttle_c}, shutdown_c = {self.shutdown_c}: must rise in "
                "this order, from above 0 to 150"
            )
        if not -50 <= self.inlet_c <= 150:
            raise BadInput(f"inlet_c = {self.inlet_c}: must be from -50 to 150")

    @property
    def flow_w_per_c(self) -> float:
        return self.flow_l_per_min / 60 * JOULES_PER_L_C[self.kind]

    @property
    def plate_c_per_w(self) -> float:
        short = max(1.0, self.rated_flow_l_per_min / self.flow_l_per_min)
        return float(self.r_plate_c_per_w * short**_SPREAD)

    @property
    def total_c_per_w(self) -> float:
        """Of the junction over the inlet, once nothing changes any more."""
        return self.r_junction_c_per_w + self.plate_c_per_w + 1 / self.flow_w_per_c


_LEAST = 1e-12
_ABOVE_0 = (
    "flow_l_per_min",
    "rated_flow_l_per_min",
    "r_junction_c_per_w",
    "r_plate_c_per_w",
    "junction_j_per_c",
    "plate_j_per_c",
    "coolant_j_per_c",
)


@dataclass(frozen=True)
class State:
    cooling: Cooling
    junction_c: float
    plate_c: float
    coolant_c: float

    def __post_init__(self) -> None:
        for key in ("junction_c", "plate_c", "coolant_c"):
            if not math.isfinite(getattr(self, key)):
                raise BadInput(f"{key} = {getattr(self, key)}: must be a temperature")


class Peak(NamedTuple):
    """The hottest moment of a stretch, and what a watt more adds there."""

    after_s: float
    junction_c: float
    c_per_w: float


class _Modes(NamedTuple):
    """`ways[:, i]` decays at `rates[i]`; `back` splits temperatures into these."""

    conductance: Array
    rates: Array
    ways: Array
    back: Array


def step(state: State, watts: float, dt_s: float) -> State:
    """Temperatures after `dt_s`, which may be infinite, at constant watts and inlet."""
    modes = _modes(state.cooling)
    rest = _rest(state.cooling, watts)
    parts = modes.back @ (_array(state) - rest)
    after = rest + modes.ways @ (parts * np.exp(-modes.rates * dt_s))
    return State(state.cooling, *map(float, after))


def steady(cooling: Cooling, watts: float) -> State:
    """Where temperatures end up."""
    return State(cooling, *map(float, _rest(cooling, watts)))


def at_inlet(state: State, inlet_c: float) -> State:
    """The same temperatures with another inlet."""
    return replace(state, cooling=replace(state.cooling, inlet_c=inlet_c))


def lasts_s(state: State, watts: float, limit_c: float) -> float:
    """How long the junction stays below `limit_c`; infinite if it never gets there."""
    if state.junction_c >= limit_c:
        return 0.0
    modes, rest, parts = _course(state, watts)
    terms = [(float(rest[0] - limit_c), 0.0)]
    terms += list(zip((modes.ways[0] * parts).tolist(), modes.rates.tolist(), strict=True))
    return first_zero(terms, 200 / float(modes.rates.min()))


def hottest(state: State, watts: float, seconds: float) -> Peak:
    """When the junction is hottest within `seconds`, which may be infinite."""
    modes, rest, parts = _course(state, watts)
    amplitudes = modes.ways[0] * parts
    end_s = min(seconds, 200 / float(modes.rates.min()))
    terms = list(zip(amplitudes.tolist(), modes.rates.tolist(), strict=True))
    moments = np.array([0.0, *turning_points(terms, end_s), end_s])
    decay = np.exp(-np.outer(moments, modes.rates))
    course = rest[0] + decay @ amplitudes
    at = int(np.argmax(course))
    per_watt = _per_watt(state.cooling)
    c_per_w = per_watt[0] - decay[at] @ (modes.ways[0] * (modes.back @ per_watt))
    return Peak(float(moments[at]), float(course[at]), float(c_per_w))


def safe_watts(state: State, seconds: float, limit_c: float) -> float:
    """The most watts that keep the junction at or below `limit_c` for `seconds`; 0 if none do.

    Temperatures are linear in watts, so each round solves for the moment that was hottest at the
    watts before. Watts only fall, to the least of these solutions."""
    if state.junction_c > limit_c:
        return 0.0
    watts = _MOST_W
    for _ in range(_ROUNDS):
        peak = hottest(state, watts, seconds)
        over_c = peak.junction_c - limit_c
        if over_c <= 1e-9:
            return watts
        if peak.c_per_w <= 0:
            return 0.0
        watts -= over_c / peak.c_per_w
        if watts <= 0:
            return 0.0
    return _halved(state, seconds, limit_c, watts)


def cooled_watts(state: State, seconds: float, limit_c: float) -> float:
    """The most watts at which the junction is at or below `limit_c` after `seconds`, which may be
    infinite, however hot it is before; 0 if none do."""
    idle_c = step(state, 0.0, seconds).junction_c
    c_per_w = (step(state, _SAMPLE_W, seconds).junction_c - idle_c) / _SAMPLE_W
    return max(0.0, (limit_c - idle_c) / c_per_w) if c_per_w > 0 else 0.0


_MOST_W, _ROUNDS, _SAMPLE_W = 1e6, 40, 1e3


def _halved(state: State, seconds: float, limit_c: float, over_w: float) -> float:
    low = 0.0
    for _ in range(60):
        middle = (low + over_w) / 2
        fits = hottest(state, middle, seconds).junction_c <= limit_c
        low, over_w = (middle, over_w) if fits else (low, middle)
    return low


def stored_j(state: State) -> float:
    """Heat above 0 degC in the three masses."""
    return float(_capacities(state.cooling) @ _array(state))


def carried_j(state: State, watts: float, dt_s: float) -> float:
    """Heat that the coolant takes away in `dt_s`."""
    modes, rest, parts = _course(state, watts)
    grown = -np.expm1(-modes.rates * dt_s) / modes.rates
    degree_seconds = rest[2] * dt_s + modes.ways[2] @ (parts * grown)
    above = degree_seconds - state.cooling.inlet_c * dt_s
    return float(state.cooling.flow_w_per_c * above)


def time_constants_s(cooling: Cooling) -> tuple[float, float, float]:
    """Fastest first."""
    fast, middle, slow = sorted(float(1 / rate) for rate in _modes(cooling).rates)
    return fast, middle, slow


def flow_for(cooling: Cooling, watts: float, limit_c: float) -> float:
    """Least flow in l/min that keeps `watts` at or below `limit_c` for good; infinite if none."""
    room = limit_c - cooling.inlet_c
    best = replace(cooling, flow_l_per_min=1e9)
    if watts * best.total_c_per_w > room:
        return math.inf
    low, high = 1e-6, 1e9
    for _ in range(200):
        middle = math.sqrt(low * high)
        fits = watts * replace(cooling, flow_l_per_min=middle).total_c_per_w <= room
        low, high = (low, middle) if fits else (middle, high)
        if high / low < 1 + 1e-12:
            break
    return high


def _course(state: State, watts: float) -> tuple[_Modes, Array, Array]:
    modes, rest = _modes(state.cooling), _rest(state.cooling, watts)
    return modes, rest, modes.back @ (_array(state) - rest)


@lru_cache(maxsize=256)
def _modes(cooling: Cooling) -> _Modes:
    a, b, flow = 1 / cooling.r_junction_c_per_w, 1 / cooling.plate_c_per_w, cooling.flow_w_per_c
    conductance = np.array([[a, -a, 0.0], [-a, a + b, -b], [0.0, -b, b + flow]])
    root = np.sqrt(_capacities(cooling))
    rates, vectors = np.linalg.eigh(conductance / np.outer(root, root))
    # All are above 0; the slowest of very unequal ones may come out below, by the last digit.
    rates = np.maximum(rates, rates.max() * 1e-16)
    return _Modes(conductance, rates, vectors / root[:, None], vectors.T * root)


@lru_cache(maxsize=256)
def _per_watt(cooling: Cooling) -> Array:
    rises: Array = np.linalg.solve(_modes(cooling).conductance, np.array([1.0, 0.0, 0.0]))
    return rises


def _rest(cooling: Cooling, watts: float) -> Array:
    return cooling.inlet_c + watts * _per_watt(cooling)


def _capacities(cooling: Cooling) -> Array:
    return np.array([cooling.junction_j_per_c, cooling.plate_j_per_c, cooling.coolant_j_per_c])


def _array(state: State) -> Array:
    return np.array([state.junction_c, state.plate_c, state.coolant_c])
