"""Puts a launcher together: the pure control, what it may ask, and those who carry its orders out.

In: what stays the same for the whole run, and where it begins. Out: a launcher that can run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.quarantine import FlapOptions, Quarantine
from nonuniform.config import JobConfig, ScheduledEvent
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.placement import Placement
from nonuniform.protocol.commit import Work, WorkOptions
from nonuniform.protocol.record import Record
from nonuniform.protocol.regroup import next_record, transfer_of
from nonuniform.protocol.state import Control, Options, Regroup
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.shelf import Shelf
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.launcher import Crew, Launcher
from nonuniform.train.listener import SAVING_LIMIT
from nonuniform.train.membership import Board
from nonuniform.train.orders import HEALTH_FILE, HealthFile, Orders
from nonuniform.train.resume import Beginning
from nonuniform.train.roster import JobSetup, Roster
from nonuniform.train.saver import Saver, savers
from nonuniform.train.seal import SealedStore
from nonuniform.train.spawn import Spawner
from nonuniform.train.worker import WorkerOrders


def cluster_of(job: JobConfig) -> ClusterState:
    parallel = job.parallel
    return ClusterState(parallel.replicas, parallel.degree, spares=parallel.spares)


def ntp_options(job: JobConfig) -> NtpOptions:
    return NtpOptions(job.parallel.min_degree, job.batch.sequences, job.parallel.borrow)


def flap_options(job: JobConfig) -> FlapOptions:
    health = job.health
    return FlapOptions(
        health.flaps, health.flap_window_s, health.quarantine_s, health.quarantine_max_s
    )


def control_options(setup: JobSetup) -> Options:
    """What the control may ask of the plan, the policy and the data."""
    job, plan, policy = setup.job, setup.plan, ntp_options(setup.job)

    def regroup(asked: Regroup) -> tuple[Record, str]:
        return next_record(
            plan,
            policy,
            asked.cluster,
            asked.reports,
            asked.position,
            asked.generation,
            before=asked.before,
            lenders=asked.lenders,
            load=asked.load,
        )

    def place(cluster: ClusterState, before: Placement) -> Placement:
        return next_placement(cluster, policy, before=before)[0]

    def lenders(record: Record) -> Collection[str]:
        members = {member.gpu for member in record.placement.members()}
        return {move.source for move in transfer_of(plan, record).moves} - members

    def samples(work: Work) -> Sequence[int]:
        if work.kind == "validate":
            return setup.windows.validation_ids(job.run.val_sequences)
        return setup.windows.step_ids(work.step)

    return Options(
        work=WorkOptions(job.run.steps, job.run.val_every),
        regroup=regroup,
        place=place,
        savers=lambda record: savers(plan, record.holdings),
        lenders=lenders,
        samples=samples,
        stop_at_nonfinite=job.run.nonfinite == "stop",
        final=job.checkpoint.final,
    )


def assemble(
    setup: JobSetup,
    store: Any,
    beginning: Beginning,
    chronicle: Chronicle,
    schedule: Sequence[ScheduledEvent],
    interrupt: Interrupt,
    spawner: Spawner,
    target: Callable[[WorkerOrders], None],
) -> Launcher:
    job = setup.job
    board = Board(SealedStore(store, setup.secret))
    roster = Roster(setup, spawner, target)
    shelf = Shelf(setup.checkpoints, job.checkpoint.keep)
    patience_s = SAVING_LIMIT * job.run.hang_timeout_s
    saver = Saver(board, shelf, Identity.of(job, setup.corpus), setup.plan, patience_s)
    cluster = cluster_of(job)
    health = HealthFile(_health_path(setup), cluster)
    orders = Orders(schedule, health, roster, chronicle)
    crew = Crew(roster, board, chronicle, saver, orders, interrupt)
    options = control_options(setup)
    record, reason = next_record(
        setup.plan, ntp_options(job), cluster, (), beginning.position, 1, load=beginning.load
    )
    state = Control(
        options=options,
        record=record,
        cluster=cluster,
        position=beginning.position,
        quarantine=Quarantine(flap_options(job)),
        saved=beginning.position.step,
    )
    return Launcher(setup, crew, state, reason)


def _health_path(setup: JobSetup) -> Path:
    return setup.logs.parent / HEALTH_FILE
