"""The board that a run's processes share: generations, votes, outcomes, reports.

In: a store (torch's TCPStore, hosted by the launcher, on the given address only), whose values
prove the job's secret. Out: typed reads and writes under one scheme of keys. DESIGN "The step is a
transaction" and "Generations".

    g{n}/record                  placement and what everyone holds; written once, by the launcher
    g{n}/over                    why generation n ended; rings the alarm of every member
    g{n}/pause                   a wish to end at the next commit (somebody waits to join or to go)
    g{n}/{kind}{step}/vote/{gpu} one rank's vote      .../votes their number
    g{n}/{kind}{step}/outcome    decided once, by compare-and-set
    g{n}/units{step}/{gpu}       hashes of a rank's units, if they are to be compared
    g{n}/part{step}/{gpu}        what a rank has written of a checkpoint, or why it has not
    g{n}/settled/{gpu}           the rank holds its shard of generation n
    g{n}/report/{gpu}/{life}     what the rank holds after generation n ended
    ready/{gpu}/{life}           a process has started and waits to be placed
    beat/{gpu}/{life}            its last sign of life
    error/{gpu}/{life}           the last words of a process that failed by an exception

Knows nothing of tensors and decides nothing.
"""

from __future__ import annotations

import datetime
import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from nonuniform.errors import BadInput, NonuniformError
from nonuniform.protocol.commit import Vote, Work
from nonuniform.protocol.outcome import UNDECIDED
from nonuniform.protocol.record import Record, Report, Settled
from nonuniform.protocol.vital import Beat
from nonuniform.train.seal import Forged, SealedStore, Store

ABANDONED = "the launcher has failed"  # as the end of a generation: the end of all


class Abandoned(NonuniformError):
    """There will be no record: the launcher has failed."""


class Board:
    """Typed keys over a store. One object per thread: a client blocks while it waits.

    What was not written by this run reads as absent; where it was waited for, Forged is raised.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    # --- generations

    def publish(self, record: Record) -> None:
        self.store.set(f"g{record.generation}/record", record.to_json())

    def wait_record(self, generation: int, timeout_s: float) -> Record:
        key = f"g{generation}/record"
        self._wait(key, timeout_s)
        text = self.store.get(key).decode()
        if text == ABANDONED:
            raise Abandoned(ABANDONED)
        return Record.from_json(text)

    def publish_nothing(self, generation: int) -> None:
        """End the waits for a record that will never come."""
        self.store.compare_set(f"g{generation}/record", UNDECIDED, ABANDONED)

    def end_generation(self, generation: int, reason: str) -> None:
        self.store.set(f"g{generation}/over", reason)

    def wait_end(self, generation: int, timeout_s: float) -> str:
        self._wait(f"g{generation}/over", timeout_s)
        return self.store.get(f"g{generation}/over").decode()

    def abandon(self, generation: int) -> None:
        """Tell everybody that the launcher can go on no longer, as if it was gone: whichever of
        the ends they wait for. It may have failed between two orders, so `generation` may be one
        that was never published."""
        for number in (generation - 1, generation, generation + 1):
            self.end_generation(number, ABANDONED)

    def request_pause(self, generation: int) -> None:
        self.store.set(f"g{generation}/pause", "1")

    def forget_generation(self, generation: int, lives: Mapping[str, int]) -> None:
        """Delete what ranks said of a generation; its record and end stay for slow joiners."""
        self.store.delete_key(f"g{generation}/pause")
        for gpu, life in lives.items():
            self.store.delete_key(f"g{generation}/settled/{gpu}")
            self.store.delete_key(f"g{generation}/report/{gpu}/{life}")

    # --- one transaction

    def put_vote(self, vote: Vote) -> None:
        key = work_key(vote.generation, vote.kind, vote.step)
        self.store.set(f"{key}/vote/{vote.gpu}", json.dumps(vote.to_json()))

    def count_vote(self, generation: int, work: Work) -> int:
        """One vote more; how many there are with it."""
        return self.store.add(work_key(generation, work.kind, work.step) + "/votes", 1)

    def all_voted(self, generation: int, work: Work, gpus: list[str]) -> bool:
        """Whether every vote is there, and was cast by a process of the run."""
        key = work_key(generation, work.kind, work.step)
        return all(self._find(f"{key}/vote/{gpu}") is not None for gpu in gpus)

    def pause_wanted(self, generation: int) -> bool:
        return self._find(f"g{generation}/pause") is not None

    def votes(self, generation: int, work: Work, gpus: list[str]) -> dict[str, Vote]:
        key = work_key(generation, work.kind, work.step)
        found = {gpu: self._read(f"{key}/vote/{gpu}") for gpu in gpus}
        return {gpu: Vote.from_json(row) for gpu, row in found.items() if row is not None}

    def decide(self, generation: int, work: Work, outcome: str) -> str:
        """Try to set the outcome; what it is in the end, whoever was first."""
        key = work_key(generation, work.kind, work.step) + "/outcome"
        return self.store.compare_set(key, UNDECIDED, outcome).decode()

    def outcome(self, generation: int, work: Work) -> str | None:
        """The outcome if there is one."""
        return self._find(work_key(generation, work.kind, work.step) + "/outcome")

    def wait_outcome(self, generation: int, work: Work, timeout_s: float) -> str:
        key = work_key(generation, work.kind, work.step) + "/outcome"
        self._wait(key, timeout_s)
        return self.store.get(key).decode()

    def forget(self, generation: int, work: Work, gpus: list[str]) -> None:
        """Delete the keys of a transaction that everybody has left behind."""
        key = work_key(generation, work.kind, work.step)
        for name in [f"{key}/votes", f"{key}/outcome", *(f"{key}/vote/{gpu}" for gpu in gpus)]:
            self.store.delete_key(name)

    def say_units(self, generation: int, step: int, gpu: str, hashes: str) -> None:
        self.store.set(f"{work_key(generation, 'units', step)}/{gpu}", hashes)

    def take_units(self, generation: int, step: int, gpus: list[str]) -> dict[str, bytes] | None:
        """The hashes of a step once all `gpus` have said them, which deletes them; else None."""
        keys = {gpu: f"{work_key(generation, 'units', step)}/{gpu}" for gpu in gpus}
        if not all(self.store.check([key]) for key in keys.values()):
            return None
        said = {gpu: self.store.get(key) for gpu, key in keys.items()}
        for key in keys.values():
            self.store.delete_key(key)
        return said

    def say_part(self, generation: int, step: int, gpu: str, part: Mapping[str, Any]) -> None:
        self.store.set(f"{work_key(generation, 'part', step)}/{gpu}", json.dumps(part))

    def take_part(self, generation: int, step: int, gpu: str) -> Any:
        """What a rank has said of its part of a checkpoint, which deletes it; else None."""
        key = f"{work_key(generation, 'part', step)}/{gpu}"
        row = self._read(key)
        if row is not None:
            self.store.delete_key(key)
        return row

    # --- what ranks say of themselves

    def settled(self, generation: int, settled: Settled) -> None:
        self._say(f"g{generation}/settled/{settled.gpu}", settled)

    def read_settled(self, generation: int, gpu: str) -> Settled | None:
        row = self._read(f"g{generation}/settled/{gpu}")
        return Settled(**row) if row else None

    def report(self, generation: int, report: Report, life: int) -> None:
        """By life: what a process held is not what its successor on the same GPU holds."""
        self._say(f"g{generation}/report/{report.gpu}/{life}", report)

    def read_report(self, generation: int, gpu: str, life: int) -> Report | None:
        row = self._read(f"g{generation}/report/{gpu}/{life}")
        return Report(**row) if row else None

    def ready(self, gpu: str, life: int) -> None:
        self.store.set(f"ready/{gpu}/{life}", "1")

    def is_ready(self, gpu: str, life: int) -> bool:
        """Whether the process has started, and knows the secret."""
        return self._find(f"ready/{gpu}/{life}") is not None

    def beat(self, gpu: str, life: int, beat: Beat) -> None:
        self.store.set(f"beat/{gpu}/{life}", json.dumps(asdict(beat)))

    def read_beat(self, gpu: str, life: int) -> Beat | None:
        row = self._read(f"beat/{gpu}/{life}")
        return Beat(**row) if row else None

    def forget_process(self, gpu: str, life: int) -> None:
        for key in ("ready", "beat", "error"):
            self.store.delete_key(f"{key}/{gpu}/{life}")

    def last_words(self, gpu: str, life: int, text: str) -> None:
        self.store.set(f"error/{gpu}/{life}", text)

    def read_last_words(self, gpu: str, life: int) -> str | None:
        return self._find(f"error/{gpu}/{life}")

    def _say(self, key: str, value: Settled | Report) -> None:
        self.store.set(key, json.dumps(asdict(value)))

    def _read(self, key: str) -> Any:
        text = self._find(key)
        return None if text is None else json.loads(text)

    def _find(self, key: str) -> str | None:
        try:
            return self.store.get(key).decode() if self.store.check([key]) else None
        except Forged:
            return None

    def _wait(self, key: str, timeout_s: float) -> None:
        self.store.wait([key], datetime.timedelta(seconds=timeout_s))


def work_key(generation: int, kind: str, step: int) -> str:
    return f"g{generation}/{kind}{step}"


def host_store(address: str, port: int) -> tuple[Any, int]:
    """Start the store in this process, listening on `address` alone; (store, its port)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise BadInput(
            f"[run] address = {address}, port = {port}: cannot listen there ({error.strerror})"
        ) from None
    port = listener.getsockname()[1]
    # Given a bound socket: by itself the store would listen on every address of the machine.
    store = dist.TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        timeout=datetime.timedelta(seconds=60),
    )
    return store, port


def connect_board(address: str, port: int, timeout_s: float, secret: str) -> Board:
    return Board(SealedStore(connect_store(address, port, timeout_s), secret))


def connect_store(address: str, port: int, timeout_s: float) -> Any:
    """A client of its own for each thread that may block."""
    return dist.TCPStore(
        address,
        port,
        is_master=False,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
