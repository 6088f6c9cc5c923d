"""Text as training windows, and the order in which a run consumes them.

In: file patterns, the window length, a seed. Out: sample ids for a position in the run, and the
bytes of those samples. DESIGN "The step is a transaction": the order is a function of (seed,
position) alone, so a redone step sees the same samples, and a restart does not drift. Knows nothing
of torch, replicas that fail or optimizers.

The files are read as bytes and seen as one long text. Window w starts at byte w * length and has
length + 1 bytes: inputs and next-byte targets. The last share of the windows is held out for
validation; no target in it is ever a target in training. Nothing that a process keeps grows with
the number of bytes: windows are read from the files when asked for, and the order of an epoch is
computed, not stored.

A sample id is epoch * windows + window, where `windows` counts the held-out ones too. So over one
epoch each training window has exactly one id, no id comes twice in a run, and id % windows is the
window.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import sysconfig
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nonuniform.config import JobConfig
from nonuniform.errors import BadInput

Ids = tuple[int, ...]
_Words = npt.NDArray[np.uint64]

_KEY = "[data] text"
_NOT_SOURCE = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"]
)
_OPEN_FILES = 16
_ROUNDS = 8


@dataclass(frozen=True)
class Corpus:
    """Names and sizes of the files, listed once by the launcher and handed to every worker."""

    root: str
    files: tuple[tuple[str, int], ...]

    @classmethod
    def open(cls, patterns: Sequence[str], root: Path) -> Corpus:
        """The files of the patterns, seen from `root`; without any, Python's standard library."""
        if not patterns:
            root = Path(sysconfig.get_path("stdlib"))
            return cls._listed(root, _source_files(root), f"{_KEY} (default: {root}/**/*.py)")
        names: set[str] = set()
        for pattern in patterns:
            found = _matches(pattern, root)
            if not found:
                raise BadInput(f'{_KEY} = "{pattern}": no file matches in {root}')
            names |= found
        return cls._listed(root, names, f"{_KEY} = {json.dumps(list(patterns))}")

    @classmethod
    def _listed(cls, root: Path, names: set[str], what: str) -> Corpus:
        try:
            sizes = [(name, os.stat(root / name).st_size) for name in sorted(names)]
        except OSError as error:
            raise BadInput(f"{what}: {error.filename}: {error.strerror}") from error
        files = tuple((name, size) for name, size in sizes if size > 0)
        if not files:
            raise BadInput(f"{what}: {len(sizes)} files with 0 bytes in total")
        return cls(str(root.absolute()), files)

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(size for _, size in self.files)

    def fingerprint(self) -> str:
        """sha256 of names and sizes, without the root: a copy elsewhere is the same corpus."""
        return hashlib.sha256(json.dumps(self.files).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "files": [list(entry) for entry in self.files]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Corpus:
        return cls(str(data["root"]), tuple((str(name), int(size)) for name, size in data["files"]))


@dataclass(frozen=True)
class WindowOptions:
    """`length` in bytes, `sequences` of a global batch, `holdout` as a share of the windows."""

    length: int
    sequences: int
    seed: int = 0
    holdout: float = 0.05

    def __post_init__(self) -> None:
        if self.length < 1 or self.sequences < 1:
            raise BadInput(
                f"[batch] length = {self.length}, sequences = {self.sequences}: "
                "both must be at least 1"
            )
        if self.seed < 0:
            raise BadInput(f"[run] seed = {self.seed} must not be negative")
        if not 0 <= self.holdout < 1:
            raise BadInput(f"[data] holdout = {self.holdout} must be at least 0 and below 1")


class Windows:
    """The samples of one corpus: which come at a position, and what they hold."""

    def __init__(self, corpus: Corpus, options: WindowOptions) -> None:
        self.options = options
        self.windows = max(0, (corpus.size - 1) // options.length)
        held_out = round(self.windows * options.holdout)
        if options.holdout > 0:
            held_out = max(1, held_out)
        self.training = max(0, self.windows - held_out)
        if self.training < options.sequences:
            raise BadInput(
                f"{_KEY}: {len(corpus.files)} files with {corpus.size} bytes give {self.training} "
                f"training windows of [batch] length = {options.length}, fewer than "
                f"sequences = {options.sequences}"
            )
        self._text = _Text(corpus)

    def sample_ids(self, position: int, count: int) -> Ids:
        """The ids at positions [position, position + count) of the run, across epochs too."""
        ids: list[int] = []
        while len(ids) < count:
            epoch, first = divmod(position + len(ids), self.training)
            last = min(self.training, first + count - len(ids))
            order = sample_order(self.options.seed, epoch, self.training)
            ids += (epoch * self.windows + order(np.arange(first, last))).tolist()
        return tuple(ids)

    def step_ids(self, step: int) -> Ids:
        """The samples of the global batch of one step."""
        positions = step_positions(step, self.options.sequences)
        return self.sample_ids(positions.start, len(positions))

    def validation_ids(self, count: int) -> Ids:
        """At most `count` held-out samples, evenly spread over that part; always the same."""
        held_out = self.windows - self.training
        count = min(count, held_out)
        return tuple(self.training + k * held_out // count for k in range(count))

    def batch(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """The bytes of the samples, [len(ids), length + 1]."""
        length = self.options.length
        rows = np.empty((len(ids), length + 1), dtype=np.int64)
        for row, sample in zip(rows, ids, strict=True):
            text = self._text.read(sample % self.windows * length, length + 1)
            row[:] = np.frombuffer(text, dtype=np.uint8)
        return rows

    def close(self) -> None:
        self._text.close()


def job_windows(job: JobConfig, corpus: Corpus) -> Windows:
    """The samples of a job: the launcher and every worker see the same."""
    options = WindowOptions(
        length=job.batch.length,
        sequences=job.batch.sequences,
        seed=job.run.seed,
        holdout=job.data.holdout,
    )
    return Windows(corpus, options)


class _Order:
    """A pseudo-random permutation of 0..count-1 that is computed entry by entry.

    A table would take 8 bytes per window in every worker. This is a Feistel network over the next
    even number of bits: a bijection whatever its round function is. Values beyond the end are sent
    through again until they land inside, which keeps it a bijection on the rest.
    """

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        self._count = count
        self._half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        # Raw output: numpy promises that it stays the same in later versions.
        self._keys = np.random.Philox(np.random.SeedSequence((seed, epoch))).random_raw(_ROUNDS)

    def __call__(self, places: npt.ArrayLike) -> npt.NDArray[np.int64]:
        values = self._turn(np.atleast_1d(np.asarray(places, dtype=np.uint64)))
        while (outside := values >= self._count).any():
            values[outside] = self._turn(values[outside])
        return values.astype(np.int64)

    def _turn(self, values: _Words) -> _Words:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (_scrambled(right + key) & self._mask)
        return (left << self._half) | right


@lru_cache(maxsize=4)
def sample_order(seed: int, epoch: int, count: int) -> _Order:
    """The order of one epoch: place in the epoch -> training window, vectorised."""
    return _Order(seed, epoch, count)


def _scrambled(words: _Words) -> _Words:
    """Spread every bit of a word over all of it: xor-shifts and odd factors, modulo 2**64."""
    for shift, factor in ((32, 0xD6E8FEB86659FD93), (32, 0xA0761D6478BD642F)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(32))


def step_positions(step: int, sequences: int) -> range:
    """The positions in the run that one step consumes; step 1 is the first."""
    return range((step - 1) * sequences, step * sequences)


def split_by_share(ids: Sequence[int], shares: Sequence[int]) -> tuple[Ids, ...]:
    """Cut the ids of a global batch among the replicas, in replica order."""
    assert sum(shares) == len(ids), f"batch shares {tuple(shares)} for {len(ids)} samples"
    ends = list(accumulate(shares))
    return tuple(tuple(ids[end - share : end]) for end, share in zip(ends, shares, strict=True))


class _Text:
    """Random access to the files as one text, with a few of them open."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._starts = [0, *accumulate(size for _, size in corpus.files)]
        self._open: OrderedDict[int, int] = OrderedDict()

    def read(self, start: int, count: int) -> bytes:
        parts = []
        index = bisect_right(self._starts, start) - 1
        while count > 0:
            offset = start - self._starts[index]
            length = min(count, self._starts[index + 1] - start)
            parts.append(self._part(index, offset, length))
            start, count, index = start + length, count - length, index + 1
        return b"".join(parts)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _part(self, index: int, offset: int, length: int) -> bytes:
        name, size = self._corpus.files[index]
        path = os.path.join(self._corpus.root, name)
        try:
            handle = self._handle(index, path)
            text = os.pread(handle, length, offset)
            size_now = os.fstat(handle).st_size
        except OSError as error:
            raise BadInput(f"{_KEY}: {path}: {error.strerror}") from error
        if size_now != size or len(text) != length:
            raise BadInput(f"{_KEY}: {path} has {size_now} bytes, but had {size} when listed")
        return text

    def _handle(self, index: int, path: str) -> int:
        if index not in self._open:
            if len(self._open) >= _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            self._open[index] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open.move_to_end(index)
        return self._open[index]


def _matches(pattern: str, root: Path) -> set[str]:
    found = glob.glob(pattern, root_dir=root, recursive=True)
    return {os.path.normpath(name) for name in found if (root / name).is_file()}


def _source_files(root: Path) -> set[str]:
    names: set[str] = set()
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in _NOT_SOURCE]
        paths = (Path(folder, name) for name in files if name.endswith(".py"))
        names |= {path.relative_to(root).as_posix() for path in paths}
    return names
