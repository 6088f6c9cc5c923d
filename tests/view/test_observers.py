"""The observers: how often they draw, what they print, and what each terminal gets."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from types import ModuleType

import pytest
from rich.console import Console

from nonuniform.view import LiveObserver, NullObserver, PlainObserver, RunObserver, choose_observer

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def terminal(**options: object) -> Console:
    settings: dict[str, object] = {"force_terminal": True, "width": 80, "height": 24}
    return Console(file=io.StringIO(), **{**settings, **options})  # type: ignore[arg-type]


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def observers() -> list[RunObserver]:
    return [NullObserver(), PlainObserver(io.StringIO()), LiveObserver(terminal())]


@pytest.mark.parametrize("observer", observers(), ids=lambda o: type(o).__name__)
def test_each_lives_through_a_whole_run(rehearsal: ModuleType, observer: RunObserver) -> None:
    rehearsal.play(rehearsal.Rehearsal().calls(), observer)


def test_it_redraws_at_most_eight_times_a_second(rehearsal: ModuleType) -> None:
    clock = Clock()
    live = LiveObserver(terminal(), clock)
    calls = rehearsal.Rehearsal().calls()
    live.on_start(calls[0][1])
    steps = [record for name, record in calls if name == "on_step"]
    before = live.draws
    for tenth_of_a_hundredth in range(10_000):  # 10 s, a tick each ms, a step each 200 ms
        clock.now_s = tenth_of_a_hundredth / 1000
        if tenth_of_a_hundredth % 200 == 0:
            live.on_step(steps[tenth_of_a_hundredth // 200])
        live.tick()
    assert 40 <= live.draws - before <= 80


def test_with_nothing_new_only_the_clock_moves_twice_a_second(rehearsal: ModuleType) -> None:
    clock = Clock()
    live = LiveObserver(terminal(), clock)
    live.on_start(rehearsal.Rehearsal().info())
    before = live.draws
    for millisecond in range(5_000):
        clock.now_s = millisecond / 1000
        live.tick()
    assert 8 <= live.draws - before <= 11


def test_a_slow_terminal_is_drawn_less_often(rehearsal: ModuleType) -> None:
    class SlowClock(Clock):
        def __call__(self) -> float:
            self.now_s += 0.05  # every look at the clock, so also every redraw, takes 50 ms
            return self.now_s

    clock = SlowClock()
    live = LiveObserver(terminal(), clock)
    live.on_start(rehearsal.Rehearsal().info())
    before = live.draws
    while clock.now_s < 20:
        live.on_event({"kind": "grain", "reason": "x", "step": 1})
        live.tick()
    assert live.draws - before <= 20


def test_a_tick_without_a_redraw_costs_next_to_nothing(rehearsal: ModuleType) -> None:
    live = LiveObserver(terminal(), Clock())
    live.on_start(rehearsal.Rehearsal().info())
    begun_s = time.perf_counter()
    for _ in range(10_000):
        live.tick()
    assert time.perf_counter() - begun_s < 1.0  # 100 us each; really some 0.3 us


def test_the_last_picture_stays_and_the_cursor_comes_back(rehearsal: ModuleType) -> None:
    console = terminal()
    rehearsal.play(rehearsal.Rehearsal().calls(), LiveObserver(console))
    shown = written(console)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert "60/60" in shown[shown.rindex("nonuniform") :]


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch, rehearsal: ModuleType) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    plain = terminal(color_system="standard")
    rehearsal.play(rehearsal.Rehearsal().calls(), LiveObserver(plain))
    assert not COLOUR.search(written(plain))
    monkeypatch.delenv("NO_COLOR")
    coloured = terminal(color_system="standard")
    rehearsal.play(rehearsal.Rehearsal().calls(), LiveObserver(coloured))
    assert COLOUR.search(written(coloured))


def test_who_gets_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_observer(terminal()), LiveObserver)
    assert isinstance(choose_observer(terminal(), plain=True), PlainObserver)
    assert isinstance(choose_observer(Console(file=io.StringIO())), PlainObserver)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_observer(terminal()), PlainObserver)


def test_log_lines_are_plain_and_few(rehearsal: ModuleType) -> None:
    stream = io.StringIO()
    rehearsal.play(rehearsal.Rehearsal(steps=1000).calls(), PlainObserver(stream))
    lines = stream.getvalue().splitlines()
    assert all(re.match(r" *\d+\.\d\d s  \S", line) for line in lines)
    assert "\x1b" not in stream.getvalue()
    steps = [line for line in lines if re.search(r"s  step \d", line)]
    assert 20 <= len(steps) <= 30
    assert any("step 1/1000" in line for line in steps)
    assert any("step 1000/1000" in line for line in steps)


def test_log_lines_tell_each_incident_once(rehearsal: ModuleType) -> None:
    stream = io.StringIO()
    rehearsal.play(rehearsal.Rehearsal().calls(), PlainObserver(stream))
    text = stream.getvalue()
    assert text.count("GPU 1/2 died at step 12 (killed by signal 9)") == 1
    assert text.count("GPU 1/2 died at step 12: replica 1 goes on at degree 3 of 4; noticed") == 1
    assert text.count("GPU 1/2 joined at step 34") == 1
    assert text.count("validation loss") == 3


class Gone(io.StringIO):
    """A stream that takes one write and fails from then on."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        if self.getvalue():
            raise self.error
        return super().write(text)


ERRORS = [BrokenPipeError(32, "Broken pipe"), OSError(5, "I/O"), ValueError("closed file")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_log_lines_nobody_can_read_do_not_end_the_run(
    rehearsal: ModuleType, error: Exception
) -> None:
    stream = Gone(error)
    rehearsal.play(rehearsal.Rehearsal().calls(), PlainObserver(stream))
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_terminal_that_is_gone_does_not_end_the_run(
    rehearsal: ModuleType, error: Exception
) -> None:
    stdout = sys.stdout
    console = Console(file=Gone(error), force_terminal=True, width=80, height=24)
    live = LiveObserver(console)
    rehearsal.play(rehearsal.Rehearsal().calls(), live)
    assert live.draws <= 1
    assert sys.stdout is stdout  # which the live view takes over while it is there


def test_a_pipe_whose_reader_leaves_gives_no_error_at_the_end(rehearsal: ModuleType) -> None:
    script = (
        "import sys; from nonuniform.view.plain import PlainObserver\n"
        "plain = PlainObserver()\n"
        "plain.on_start({'replicas': 1, 'degree': 1, 'steps': 9})\n"
        "sys.stdin.readline()\n"
        "for step in range(1, 10): plain.on_step({'step': step, 'loss': 1.0})\n"
        "print('more that nobody reads')"
    )
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert b"1 replicas" in process.stdout.readline()
        process.stdout.close()
        _, said = process.communicate(b"go on\n", timeout=60)
    assert (process.returncode, said) == (0, b"")


def test_a_stream_that_does_not_know_a_letter_gets_it_escaped() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    plain = PlainObserver(stream)
    plain.on_start({"replicas": 1, "degree": 1, "steps": 9, "out": "Läufe"})
    stream.seek(0)
    assert "writing to L\\xe4ufe" in stream.read()


def test_log_lines_do_not_name_every_process_that_starts(rehearsal: ModuleType) -> None:
    stream = io.StringIO()
    rehearsal.play(rehearsal.Rehearsal().calls(), PlainObserver(stream))
    assert "process 4711 started" not in stream.getvalue()
    assert stream.getvalue().count("all 60 steps committed") == 1


def test_the_reason_of_a_failed_run_is_the_last_line() -> None:
    stream = io.StringIO()
    plain = PlainObserver(stream)
    plain.on_start({"replicas": 2, "degree": 4, "min_degree": 2, "steps": 60})
    plain.on_event({"kind": "ended", "reason": "no replica is left", "step": 0, "time_s": 1.0})
    plain.on_end({"status": "failed", "reason": "no replica is left", "time_s": 1.1})
    assert stream.getvalue().count("no replica is left") == 1
    assert (
        stream.getvalue()
        .splitlines()[-1]
        .endswith("ended at step 0 of 60, 0 samples: no replica is left")
    )
