"""The GPUs that someone owns, as domains and nodes.

In: three numbers. Out: how many domains and nodes there are, and what is left over where the GPUs
are no multiple of the domain: owned and paid for, never used. DESIGN "Words". Knows nothing of
failures, jobs or names: GPU g, counted from 0, is in domain g // domain and in node g // node. A
node may hold several domains, a domain several nodes, or they may overlap (domains of 12 on nodes
of 8).
"""

from __future__ import annotations

from dataclasses import dataclass

from nonuniform.errors import BadInput


@dataclass(frozen=True)
class Fleet:
    """`gpus` in domains of `domain` GPUs and, independently, in nodes of `node` GPUs."""

    gpus: int
    domain: int
    node: int = 8

    def __post_init__(self) -> None:
        for key, value in (("gpus", self.gpus), ("domain", self.domain), ("node", self.node)):
            if value < 1:
                raise BadInput(f"cluster: {key} = {value}, expected 1 or more")
        if self.domain > self.gpus:
            raise BadInput(
                f"cluster: gpus = {self.gpus} do not fill one domain of domain = {self.domain} GPUs"
            )

    @property
    def domains(self) -> int:
        """Whole domains."""
        return self.gpus // self.domain

    @property
    def leftover(self) -> int:
        """GPUs in no whole domain: those with the highest numbers."""
        return self.gpus % self.domain

    @property
    def in_domains(self) -> int:
        """GPUs in whole domains."""
        return self.domains * self.domain

    @property
    def nodes(self) -> int:
        """Nodes, a last one that is not full included."""
        return -(-self.gpus // self.node)

    def describe(self) -> str:
        """How the cluster is used."""
        text = f"{_counted(self.domains, 'domain')} of {_counted(self.domain, 'GPU')}"
        return f"{text} + {_counted(self.leftover, 'GPU')} left over" if self.leftover else text


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
