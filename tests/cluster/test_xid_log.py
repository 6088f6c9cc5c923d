"""Kernel logs: which Xids cost a GPU, and which GPU of which node."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.log_format import Clock, LogFormat, Nodes, Window
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput

FLEET = Fleet(gpus=32, domain=16, node=8)
WINDOW = Window("2024-05-01T00:00:00Z", "2024-06-01T00:00:00Z")
FORM = LogFormat(format="xid", nodes=Nodes(order="number"), window=WINDOW)
OFF = "79, pid=1234, name=python, GPU has fallen off the bus."

LOG = f"""\
2024-05-02T00:00:00+00:00 gpu01 kernel: Linux version 6.8.0
2024-05-02T00:00:01+00:00 gpu01 kernel: NVRM: GPU at PCI:0000:1a:00: GPU-5d9d77a0
2024-05-02T00:00:01+00:00 gpu01 kernel: NVRM: GPU at PCI:0000:3b:00: GPU-5d9d77a1
2024-05-03T06:00:00.500000+00:00 gpu01 kernel: [ 1.2] NVRM: Xid (PCI:0000:3b:00): {OFF}
2024-05-03T07:00:00+00:00 gpu02 kernel: NVRM: Xid (PCI:0000:1a:00): 31, pid=7, MMU Fault
2024-05-04T00:00:00+0200 gpu02 kernel: NVRM: Xid (PCI:0000:d8:00): 95, Uncontained
2024-05-05T00:00:00Z gpu03 kernel: NVRM: Xid (PCI:0000:1a:00): 94, Contained
"""


def read(
    folder: Path, text: str, form: LogFormat = FORM, skip: bool = False
) -> tuple[Trace, LogReport]:
    path = folder / "kern.log"
    path.write_text(text)
    return read_log(path, form, FLEET, skip)


def hits(trace: Trace) -> list[tuple[int, int, float]]:
    rows = zip(trace.first_gpu, trace.start_h, strict=True)
    return [(int(gpu) // 8, int(gpu) % 8, float(start)) for gpu, start in rows]


def xids(*rows: tuple[str, str, str], head: str = "{} {} kernel: ") -> str:
    """(time, node, "address): number, ...")."""
    return "".join(f"{head.format(t, n)}NVRM: Xid (PCI:{rest}\n" for t, n, rest in rows)


def test_gpus_by_address_and_times_by_their_zone(tmp_path: Path) -> None:
    trace, report = read(tmp_path, LOG)
    assert hits(trace) == [(1, 1, pytest.approx(54 + 0.5 / 3600)), (2, 2, pytest.approx(70))]
    assert set(trace.gpus) == {1}
    assert trace.causes == ("Xid 79 fallen off the bus", "Xid 95 uncontained memory error")
    assert trace.end_h.tolist() == [math.inf, math.inf]
    assert report.rows == 7
    assert [(d.kind, d.count, d.first, d.wrong) for d in report.dropped] == [
        ("no Xid", 3, "line 1", False),
        ("an Xid that costs no GPU", 2, "line 5 (31)", False),
    ]
    assert "PCI addresses in ascending order are the GPUs of a node, the same in all" in (
        report.assumed
    )
    assert "2 failures without an end: down for good" in report.assumed


def test_a_list_of_addresses_gives_the_order(tmp_path: Path) -> None:
    form = LogFormat(
        format="xid",
        nodes=FORM.nodes,
        window=WINDOW,
        repair_h=24,
        pci=("00000000:D8:00", "3b:00", "0000:1A:00"),
    )
    trace, _ = read(tmp_path, LOG, form)
    assert [(node, gpu) for node, gpu, _ in hits(trace)] == [(1, 1), (2, 0)]
    assert (trace.end_h - trace.start_h).tolist() == [pytest.approx(24)] * 2
    form = LogFormat(format="xid", nodes=FORM.nodes, window=WINDOW, pci=("3b:00",))
    with pytest.raises(BadInput, match="1 row with more GPUs in its node than 8, or one that is"):
        read(tmp_path, LOG, form)


def test_machines_of_different_builds_are_numbered_each_on_its_own(tmp_path: Path) -> None:
    day = "2024-05-02T00:00:00Z"
    rows = [
        (day, f"gpu{n:02}", f"0000:{16 * n + i:02x}:00): 79, x") for n in (1, 2) for i in range(6)
    ]
    trace, report = read(tmp_path, xids(*rows))
    assert [(n, i) for n, i, _ in hits(trace)] == [(n, i) for n in (1, 2) for i in range(6)]
    assert any("in each on its own" in text for text in report.assumed)


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        *((n, True) for n in (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158)),
        *((n, False) for n in (8, 13, 31, 32, 37, 43, 45, 63, 92, 94, 121, 137, 145, 160, 999)),
    ],
)
def test_which_xids_cost_the_gpu(tmp_path: Path, number: int, lost: bool) -> None:
    day = "2024-05-02T00:00:00Z"
    text = xids((day, "gpu01", f"0000:3b:00): {number}, pid='<unknown>', text"))
    assert len(read(tmp_path, text)[0]) == lost
    mine = LogFormat(format="xid", nodes=FORM.nodes, window=WINDOW, lost_xids=(94, 999))
    assert len(read(tmp_path, text, mine)[0]) == (number in (94, 999))


@pytest.mark.parametrize(
    ("action", "lost"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", True),
        ("0x0 (None) to 0x2 (Node Reboot Required)", True),
        ("0x0 (None) to 0x4 (Drain and Reset)", True),
        ("0x0 (None) to 0x3 (Drain P2P)", False),
        ("0x1 (GPU Reset Required) to 0x0 (None)", False),
    ],
)
def test_xid_154_says_itself(tmp_path: Path, action: str, lost: bool) -> None:
    rest = f"0000:3b:00): 154, GPU recovery action changed from {action}"
    assert len(read(tmp_path, xids(("2024-05-02T00:00:00Z", "gpu01", rest)))[0]) == lost


def test_times_without_a_year_need_one_and_turn_it(tmp_path: Path) -> None:
    text = xids(
        ("Dec 30 23:00:00", "gpu01", f"0000:3b:00): {OFF}"),
        ("Dec 31 23:00:00", "gpu01", f"0000:3b:00): {OFF}"),
        ("Jan  1 01:00:00", "gpu02", f"0000:3b:00): {OFF}"),
        ("Dec 31 23:59:59", "gpu03", f"0000:3b:00): {OFF}"),  # a clock that lags a little
        ("Feb  1 01:00:00", "gpu02", f"0000:3b:00): {OFF}"),
    )
    with pytest.raises(BadInput, match=r"kern.log: the times in line 1 name no year: say"):
        read(tmp_path, text)
    form = LogFormat(format="xid", nodes=FORM.nodes, clock=Clock(year=2023), repair_h=1)
    trace, report = read(tmp_path, text, form)
    assert [hour for _, _, hour in hits(trace)] == pytest.approx(
        [0, 24, 24 + 59 / 60 + 59 / 3600, 26, 26 + 31 * 24], abs=1e-6
    )
    assert "the year turns 1 time within the log" in report.assumed


def test_dmesg_has_the_node_from_the_scenario_or_from_a_prefix(tmp_path: Path) -> None:
    line = f"[Thu May  2 00:00:00 2024] NVRM: Xid (PCI:0000:3b:00): {OFF}\n"
    one = LogFormat(format="xid", nodes=Nodes(names=("gpu09",)), window=WINDOW)
    assert hits(read(tmp_path, line, one)[0]) == [(0, 0, 24.0)]
    assert hits(read(tmp_path, f"gpu02: {line}")[0]) == [(2, 0, 24.0)]
    with pytest.raises(BadInput, match=r"1 row with an Xid and no name of a node, in line 1$"):
        read(tmp_path, line)


def test_the_same_xid_again(tmp_path: Path) -> None:
    rest = f"0000:3b:00): {OFF}"
    times = ("2024-05-02T00:00:00Z", "2024-05-02T00:00:00Z", "2024-05-02T00:00:09Z")
    trace, report = read(tmp_path, xids(*((t, "gpu01", rest) for t in times)))
    assert len(trace) == 2
    assert "1 failure of GPUs that were down already: they count once" in report.assumed
    assert [(d.count, d.first, d.wrong) for d in report.dropped] == [(1, "line 2", False)]


def test_lines_that_cannot_be_read(tmp_path: Path) -> None:
    text = LOG + "\n".join(
        [
            "2024-05-06T00:00:00Z gpu01 kernel: NVRM: Xid (43, pid: 5678): CHANNEL",
            f"[ 1234.567] NVRM: Xid (PCI:0000:3b:00): {OFF}",
            f"2024-05-32T00:00:00Z gpu01 kernel: NVRM: Xid (PCI:0000:3b:00): {OFF}",
            f"2024-05-06T00:00:00Z login kernel: NVRM: Xid (PCI:0000:3b:00): {OFF}",
        ]
    )
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text)
    found = [line.split("kern.log: ")[1] for line in str(caught.value).splitlines()]
    assert [line[: line.index(" (")] for line in found] == [
        "1 row with an Xid and no time that can be read, in line 9",
        "1 row with an Xid that cannot be read, in line 8",
        "1 row with a bad time, in line 10",
        "1 row with an unknown node",
    ]
    assert found[-1].endswith("in line 11 ('login')")
    assert len(read(tmp_path, text, skip=True)[0]) == 2


def test_a_log_without_any_xid_is_a_quiet_one(tmp_path: Path) -> None:
    trace, report = read(tmp_path, "2024-05-02T00:00:00Z gpu01 kernel: Linux version 6.8.0\n")
    assert len(trace) == 0
    assert [(d.kind, d.count) for d in report.dropped] == [("no Xid", 1)]
