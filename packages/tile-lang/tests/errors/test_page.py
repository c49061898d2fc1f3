"""docs/errors.md says what the catalogue and the cases say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_page_is_current(pytestconfig: pytest.Config) -> None:
    text = runpy.run_path(str(DOCS / "generate_errors.py"))["errors_page"]()
    if pytestconfig.getoption("--update-golden"):
        (DOCS / "errors.md").write_text(text)
    assert (DOCS / "errors.md").read_text() == text, "python -m nox -s docs -- --write"


def test_page_has_an_example_for_every_code_that_a_case_shows() -> None:
    text = (DOCS / "errors.md").read_text()
    for code in ("TL105", "TL112", "TL113", "TL127", "TLR010", "TLR013", "TLR015", "TLR016"):
        section = text.partition(f"\n### {code} ")[2].partition("\n### ")[0]
        assert "```text" in section, code
