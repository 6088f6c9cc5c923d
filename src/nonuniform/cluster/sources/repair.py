"""How long a repair takes: one number, or a distribution.

In: parameters in hours. Out: the mean, drawn durations, and drawn *remaining* durations of
repairs that are under way at a moment nobody chose. DESIGN "Two arrows". Knows nothing of what is
repaired.

A repair seen under way is a long one more often than not, since long ones are under way for
longer: its whole length is drawn with a weight that is the length, and what remains is a uniform
part of it. For each distribution here that weighted one is known, so nothing is approximated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nonuniform.errors import BadInput

Floats = npt.NDArray[np.float64]

MOST_SIGMA = 5.0
LEAST_SHAPE = 0.1


class Repair(ABC):
    """A distribution of durations above 0."""

    @property
    @abstractmethod
    def mean_h(self) -> float:
        """The mean."""

    @abstractmethod
    def draw_h(self, generator: np.random.Generator, number: int) -> Floats:
        """Whole durations."""

    @abstractmethod
    def _draw_weighted_h(self, generator: np.random.Generator, number: int) -> Floats:
        """Whole durations, each weighted with its length."""

    def draw_remaining_h(self, generator: np.random.Generator, number: int) -> Floats:
        """What is left of repairs that are under way."""
        return self._draw_weighted_h(generator, number) * (1.0 - generator.random(number))


@dataclass(frozen=True)
class Fixed(Repair):
    """Always `hours`."""

    hours: float

    def __post_init__(self) -> None:
        _check("hours", self.hours)

    @property
    def mean_h(self) -> float:
        return self.hours

    def draw_h(self, generator: np.random.Generator, number: int) -> Floats:
        return np.full(number, float(self.hours))

    def _draw_weighted_h(self, generator: np.random.Generator, number: int) -> Floats:
        return self.draw_h(generator, number)


@dataclass(frozen=True)
class LogNormal(Repair):
    """exp of a normal distribution of standard deviation `sigma`; half take at most `median_h`."""

    median_h: float
    sigma: float

    def __post_init__(self) -> None:
        _check("median_h", self.median_h)
        _check("sigma", self.sigma)
        if self.sigma > MOST_SIGMA:
            raise BadInput(
                f"repair: sigma = {self.sigma:g}, expected {MOST_SIGMA:g} or less: above, the mean "
                "is made by repairs too rare to be drawn"
            )

    @property
    def mean_h(self) -> float:
        return self.median_h * math.exp(self.sigma**2 / 2)

    def draw_h(self, generator: np.random.Generator, number: int) -> Floats:
        return generator.lognormal(math.log(self.median_h), self.sigma, number)

    def _draw_weighted_h(self, generator: np.random.Generator, number: int) -> Floats:
        return generator.lognormal(math.log(self.median_h) + self.sigma**2, self.sigma, number)


@dataclass(frozen=True)
class Weibull(Repair):
    """Survival exp(-(t / scale_h)**shape): below shape 1 a few take very long, 1 is exponential."""

    scale_h: float
    shape: float

    def __post_init__(self) -> None:
        _check("scale_h", self.scale_h)
        _check("shape", self.shape)
        if self.shape < LEAST_SHAPE:
            raise BadInput(
                f"repair: shape = {self.shape:g}, expected {LEAST_SHAPE:g} or more: below, the "
                "mean is made by repairs too rare to be drawn"
            )

    @property
    def mean_h(self) -> float:
        return self.scale_h * math.gamma(1 + 1 / self.shape)

    def draw_h(self, generator: np.random.Generator, number: int) -> Floats:
        return self.scale_h * generator.weibull(self.shape, number)

    def _draw_weighted_h(self, generator: np.random.Generator, number: int) -> Floats:
        # With the weight t, (t / scale)**shape has a gamma distribution.
        powers = generator.standard_gamma(1 + 1 / self.shape, number)
        return np.asarray(self.scale_h * powers ** (1 / self.shape), np.float64)


@dataclass(frozen=True)
class Empirical(Repair):
    """One of the observed durations, each as likely as the others."""

    hours: tuple[float, ...]
    _column: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.hours:
            raise BadInput("repair: no observed durations, expected at least one")
        for hours in self.hours:
            _check("observed duration", hours)
        object.__setattr__(self, "_column", np.array(self.hours, np.float64))

    @property
    def mean_h(self) -> float:
        return math.fsum(self.hours) / len(self.hours)

    def draw_h(self, generator: np.random.Generator, number: int) -> Floats:
        return self._column[generator.integers(len(self.hours), size=number)]

    def _draw_weighted_h(self, generator: np.random.Generator, number: int) -> Floats:
        shares = self._column / self._column.sum()
        return generator.choice(self._column, size=number, p=shares)


def fixed(hours: float) -> Fixed:
    """Always `hours`."""
    return Fixed(hours)


def lognormal(
    *, median_h: float | None = None, mean_h: float | None = None, sigma: float | None = None
) -> LogNormal:
    """By two of median, mean and sigma: mean = median * exp(sigma**2 / 2)."""
    if median_h is not None and sigma is not None and mean_h is None:
        return LogNormal(median_h, sigma)
    if mean_h is not None and sigma is not None and median_h is None:
        _check("mean_h", mean_h)
        return LogNormal(mean_h / LogNormal(1.0, sigma).mean_h, sigma)
    if median_h is not None and mean_h is not None and sigma is None:
        _check("median_h", median_h)
        _check("mean_h", mean_h)
        if mean_h <= median_h:
            raise BadInput(
                f"repair: mean_h = {mean_h:g} of a log-normal repair lies above its median, and "
                f"median_h = {median_h:g}"
            )
        return LogNormal(median_h, math.sqrt(2 * math.log(mean_h / median_h)))
    raise BadInput("repair: a log-normal repair needs two of median_h, mean_h and sigma")


def weibull(*, shape: float, scale_h: float | None = None, mean_h: float | None = None) -> Weibull:
    """By its shape, and its scale or mean."""
    if (scale_h is None) == (mean_h is None):
        raise BadInput("repair: a Weibull repair needs shape and one of scale_h and mean_h")
    if scale_h is not None:
        return Weibull(scale_h, shape)
    assert mean_h is not None
    _check("mean_h", mean_h)
    return Weibull(mean_h / Weibull(1.0, shape).mean_h, shape)


def empirical(hours: Sequence[float]) -> Empirical:
    """Durations that were seen, such as those of a log."""
    return Empirical(tuple(float(value) for value in hours))


def _check(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadInput(f"repair: {name} = {value:g}, expected a finite number above 0")
