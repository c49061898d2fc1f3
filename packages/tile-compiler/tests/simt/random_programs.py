"""What random programs of tests have in common."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def within(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


def imported(text: str, path: Path) -> Any:
    """The `program` of a text, which goes to a file: the frontend reads a kernel's text from there."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program
