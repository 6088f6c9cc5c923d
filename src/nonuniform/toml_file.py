"""A TOML file as plain values, or one line that says why not.

In: a path. Out: nested dicts. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise BadInput(f"{path}: is not valid TOML: {error}") from None
