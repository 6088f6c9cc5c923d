"""`nonuniform report`: say what a folder holds, and write its page.

In: folders, a language. Out: `report.html` in the folder of a plan, a simulation or a training
run, with the mail of a plan or the numbers of a run beside it; `comparison.html` in the first of
several runs. Each file is there as a whole or not at all. DESIGN "Outside contract". Computes
nothing.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from nonuniform.csv_file import csv_bytes
from nonuniform.errors import BadInput
from nonuniform.report.run_data import RunData, read_run_data
from nonuniform.report.run_files import EVENTS, STEPS, SUMMARY
from nonuniform.report.run_numbers import compare_numbers, run_numbers
from nonuniform.report.run_page import (
    COMPARISON_FILE,
    COMPARISON_MAIL,
    FILE,
    MAIL,
    compare_content,
    run_content,
)
from nonuniform.report.run_tables import (
    comparison_frame,
    content_markdown,
    run_frames,
)
from nonuniform.report.said import LANGUAGES, Language

PAGE, TABLES, ANSWER = "report.html", "tables", "answer.md"
COMPARISON = "comparison.html"


def report(paths: Sequence[Path], lang: str = "en", out: Path | None = None) -> Path:
    """The page that was written. `out`: another folder for all files."""
    language = check_language(lang)
    if not paths:
        raise BadInput("report: expected a folder, of a plan, a simulation or a training run")
    if len(paths) > 1:
        return _report_several(paths, language, out or paths[0])
    (folder,) = paths
    kind, summary = what_is_in(folder)
    if kind == "run":
        return _report_run(folder, language, out or folder)
    page = (out or folder) / PAGE
    if kind == "plan":
        from nonuniform.report.mail import plan_markdown

        mail = plan_markdown(summary, language).encode()
    content = _page_of(kind, summary, folder, language).encode()  # before anything is replaced
    if kind == "plan":
        _write(page.with_name(ANSWER), mail)
    _write(page, content)
    return page


def answer_of(folder: Path, lang: str = "en") -> str:
    """The answer of a plan in three sentences, for a terminal."""
    from nonuniform.report.mail import plan_answer

    _, summary = what_is_in(folder)
    return plan_answer(summary, check_language(lang))


def check_language(lang: str) -> Language:
    for language in LANGUAGES:
        if lang == language:
            return language
    raise BadInput(f"--lang {lang}: expected {' or '.join(LANGUAGES)}")


def what_is_in(folder: Path) -> tuple[str, Mapping[str, Any]]:
    """ "plan", "simulation" or "run", and the summary. BadInput for anything else."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}")
    if (folder / STEPS).is_file() or (folder / EVENTS).is_file():
        return "run", {}
    summary = _read_summary(folder / SUMMARY)
    if summary.get("kind") == "plan":
        if summary.get("status") == "failed":
            raise BadInput(f"{folder}: the plan failed: {summary.get('reason', 'no reason given')}")
        return "plan", summary
    if summary.get("command") == "simulate":
        return "simulation", summary
    raise BadInput(
        f"{folder / SUMMARY}: is neither that of a plan, nor of a simulation, nor of a training run"
    )


def _read_summary(path: Path) -> Mapping[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(
            f"{path.parent}: holds no {SUMMARY} and no {STEPS}; expected the folder of a plan, a "
            "simulation or a training run"
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error})") from None
    if not isinstance(summary, dict):
        raise BadInput(f"{path}: expected a table, found {type(summary).__name__}")
    return summary


def _page_of(kind: str, summary: Mapping[str, Any], folder: Path, lang: Language) -> str:
    if kind == "plan":
        from nonuniform.report.plan_page import plan_html

        return plan_html(summary, lang)
    from nonuniform.report.simulation_page import simulation_html

    return simulation_html(summary, folder, lang)


def _report_run(folder: Path, lang: Language, out: Path) -> Path:
    data = read_run_data(folder)
    content = run_content(data)
    for name, frame in run_frames(data).items():
        _write_table(out / TABLES / name, frame)
    _write(out / FILE, _json(run_numbers(data)))
    _write(out / MAIL, content_markdown(content, lang).encode())
    _write(out / PAGE, content.page(lang).encode())
    return out / PAGE


def _report_several(paths: Sequence[Path], lang: Language, out: Path) -> Path:
    for path in paths:
        kind, _ = what_is_in(path)
        if kind != "run":
            raise BadInput(f"{path}: is a {kind}; only training runs can be compared")
    runs = with_own_names([read_run_data(path) for path in paths])
    content, numbers = compare_content(runs), compare_numbers(runs)
    _write_table(out / TABLES / "comparison", comparison_frame(numbers))
    _write(out / COMPARISON_FILE, _json(numbers))
    _write(out / COMPARISON_MAIL, content_markdown(content, lang).encode())
    _write(out / COMPARISON, content.page(lang).encode())
    return out / COMPARISON


def with_own_names(runs: Sequence[RunData]) -> list[RunData]:
    """Two folders of one name are told apart by where they are, or at last by a number."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _write_table(path: Path, frame: pl.DataFrame) -> None:
    parquet = io.BytesIO()
    frame.write_parquet(parquet)
    _write(path.with_suffix(".csv"), csv_bytes(frame))
    _write(path.with_suffix(".parquet"), parquet.getvalue())


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _write(path: Path, content: bytes) -> None:
    """As a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
