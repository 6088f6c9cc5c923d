"""The shell's language, as far as it is followed, against what a shell does."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.planner.jobs.shell import follow
from nonuniform.planner.jobs.shell.arithmetic import calculate
from nonuniform.planner.jobs.shell.slurm import limit_days

BASH = shutil.which("bash")


def words(text: str) -> list[str]:
    script = follow("file", text, {}, {})
    return [
        field.text
        for command in script.commands
        if command.words[0].text == "show"
        for field in command.words[1:]
    ]


SCRIPTS = [
    "A=1\nshow $A ${A} \"$A\" '$A' \\$A",
    'A="x y"\nshow $A "$A" $A$A "$A"z',
    'A=(1 "2 3" 4)\nA+=(5)\nshow "${A[@]}" ${A[@]} ${A[1]} ${#A[@]} $A',
    "A=3\nB=$((A * 2 + 10 / 3 - (4 % 3)))\nshow $B $((B ** 2)) $(( $A > 2 ? 7 : 8 ))",
    'show ${X:-a b} "${X:-a b}" ${X-} ${X:=q} $X ${X:+r} ${Y:+s}',
    "A=1; A+=2; show $A; B=x show y",
    'if [ "$Q" = 1 ]; then A=1; elif [ -z "$Q" ]; then A=2; else A=3; fi; show end',
    "A=2\nif [[ $A == 2 ]]; then B=y; else B=n; fi\nshow $B",
    "A=2\nif [ $A -gt 3 ]; then B=y; else B=n; fi\nshow $B",
    "A=fp8\ncase $A in bf16) B=1 ;; fp*) B=2 ;; *) B=3 ;; esac\nshow $B",
    "A=1\n[ $A -eq 1 ] && B=yes\n[ $A -eq 2 ] && B=no\nshow $B",
    "A=1\n[ $A -eq 2 ] || B=yes\nshow $B",
    "show a \\\n  b # c\nshow d#e '#f'",
    "show a 2>/dev/null b >/dev/null; show c | cat",
    "A='--x 1 \\\n--y'\nshow $A",
    'bash -c \'true\'\nA="show  --x 1"\neval "$A 3"',
    'export A=5 B="6 7"\ndeclare -a C=(8 9)\nshow $A "$B" "${C[@]}"',
    "cat >/dev/null <<EOF\nshow hidden\nEOF\nshow seen",
    'show \'a\'"b"c $\'d\' "e\\"f" "g\\h"',
]


@pytest.mark.skipif(BASH is None, reason="compares with bash")
@pytest.mark.parametrize("text", SCRIPTS)
def test_like_bash(text: str) -> None:
    assert BASH is not None
    show = 'show() { for word in "$@"; do printf "%s\\037" "$word" >&3; done; }\nexec 3>&1\n'
    real = subprocess.run(
        [BASH, "-c", show + text], capture_output=True, text=True, timeout=10, check=False
    )
    expected = real.stdout.split("\x1f")[:-1]
    assert words(text) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 99)), min_size=1, max_size=8))
def test_arithmetic_is_that_of_integers(terms: list[tuple[str, int]]) -> None:
    text = "7" + "".join(f" {operator} {number}" for operator, number in terms)
    assert calculate(text, lambda name: None) == eval(text)


@pytest.mark.parametrize(
    "text", ["1 / 0", "A", "1 +", "2 ** 999", "(" * 500 + "1", "a[0]", "", "1 2", "x = 3"]
)
def test_arithmetic_that_is_not_known(text: str) -> None:
    assert calculate(text, lambda name: None) is None


def test_division_rounds_towards_zero_and_variables_count() -> None:
    assert calculate("-7 / 2", lambda name: None) == -3
    assert calculate("-7 % 2", lambda name: None) == -1
    assert calculate("$A * ${B}", {"A": "3", "B": "4"}.get) == 12


@pytest.mark.parametrize(
    ("text", "days"),
    [("720", 0.5), ("12:00:00", 0.5), ("7-00:00:00", 7), ("2-12", 2.5), ("30:00", 1800 / 86400)],
)
def test_time_limits(text: str, days: float) -> None:
    assert limit_days(text) == pytest.approx(days)


def test_a_time_limit_that_says_nothing() -> None:
    assert limit_days("UNLIMITED") is None
