"""What a checkpoint and the job that goes on from it must agree on.

In: a job and its text. Out: the values that decide what the weights mean and which samples come
next, and the first of them that differs between two jobs. Degrees, replicas, optimizer and run
options are free to change. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nonuniform.config import JobConfig
from nonuniform.train.data import Corpus


def _key(name: str) -> Any:
    """A field that is known to people by this key of the JOB file."""
    return field(metadata={"key": name})


@dataclass(frozen=True)
class Identity:
    layers: int = _key("[model] layers")
    hidden: int = _key("[model] hidden")
    heads: int = _key("[model] heads")
    kv_heads: int = _key("[model] kv_heads")
    head_dim: int = _key("[model] head_dim")
    ffn: int = _key("[model] ffn")
    vocab: int = _key("[model] vocab")
    tied: bool = _key("[model] tied")
    rope_base: float = _key("[model] rope_base")
    norm_eps: float = _key("[model] norm_eps")
    seed: int = _key("[run] seed")
    dtype: str = _key("[run] dtype")
    sequences: int = _key("[batch] sequences")
    length: int = _key("[batch] length")
    holdout: float = _key("[data] holdout")
    corpus_bytes: int = _key("bytes of [data] text")

    @classmethod
    def of(cls, job: JobConfig, corpus: Corpus) -> Identity:
        model = asdict(job.model)
        return cls(
            **model,
            seed=job.run.seed,
            dtype=job.run.dtype,
            sequences=job.batch.sequences,
            length=job.batch.length,
            holdout=job.data.holdout,
            corpus_bytes=corpus.size,
        )

    def complaint(self, other: Identity) -> str | None:
        """Why the job `other` cannot go on from a checkpoint of this one; None: it can."""
        differ = [
            (item.metadata["key"], getattr(self, item.name), getattr(other, item.name))
            for item in fields(self)
            if getattr(self, item.name) != getattr(other, item.name)
        ]
        if not differ:
            return None
        key, mine, theirs = differ[0]
        more = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
        return f"{key} = {theirs}, but the checkpoint was written with {mine}{more}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """ValueError where values lack or are of the wrong kind."""
        kinds = {item.name: _KINDS[str(item.type)] for item in fields(cls)}
        if kinds.keys() != data.keys():
            raise ValueError(f"identity: other keys in {sorted(kinds.keys() ^ data.keys())}")
        for name, kind in kinds.items():
            if type(data[name]) not in kind:
                raise ValueError(f"identity: {name} = {data[name]!r}")
        return cls(**data)


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "float": (float, int),
}
