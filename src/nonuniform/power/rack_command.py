"""What `nonuniform rack` does.

In: the words and options of the command line. Out: values for machines and text for people; the
procurement sheet goes to its file. Knows nothing of where the rest is printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.power.rack_answer import answer
from nonuniform.power.rack_file import load_rack_file
from nonuniform.power.show import rack_text, spec_sheet


def rack(path: Path, spec: Path | None = None) -> tuple[dict[str, Any], str]:
    """(what `--json` prints, what a person reads)."""
    values = answer(load_rack_file(path))
    if spec is not None:
        try:
            spec.write_text(spec_sheet(values), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"--spec {spec}: {error.strerror}") from None
    return values, rack_text(values)
