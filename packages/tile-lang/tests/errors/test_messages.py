"""What a user sees when something is wrong: every program in `cases/` must fail, with the text at its end.

A case is a small program with one mistake. Below the line `# --- what the user sees` stands the whole text of the
error, paths shortened to file names. `pytest --update-golden` rewrites these texts; read them before committing.
"""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

import tilelang.errors

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
MARK = "# --- what the user sees"
# The base class; and TL128, which `python -m tilelang doctor` prints (tests/cli).
NOT_A_MISTAKE = {"TL000", "TL128"}


def text_of(path: Path) -> str:
    """Run a case and give the text of the error that ends it."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 the text is compared as a whole
        runpy.run_path(str(path))
    error = caught.value
    text = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", text.replace(str(path), path.name))


def expected(path: Path) -> str | None:
    """The text below the mark, or None."""
    _, mark, below = path.read_text().partition(MARK + "\n")
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in below.splitlines()) if mark else None


def record(path: Path, text: str) -> None:
    program = path.read_text().partition(MARK)[0].rstrip()
    shown = "\n".join(f"# {line}".rstrip() for line in text.splitlines())
    path.write_text(f"{program}\n\n\n{MARK}\n{shown}\n")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_mistake_is_explained(path: Path, pytestconfig: pytest.Config) -> None:
    text = text_of(path)
    if pytestconfig.getoption("--update-golden"):
        record(path, text)
    assert text == expected(path), f"{path.name}: run pytest --update-golden and read what it wrote"


def codes_shown() -> set[str]:
    texts = [expected(path) or "" for path in CASES]
    return {code for error in tilelang.errors.catalogue() for code in [error.code] if any(code in t for t in texts)}


def test_every_code_of_the_catalogue_is_shown_by_a_case() -> None:
    codes = {error.code for error in tilelang.errors.catalogue()}
    assert codes - codes_shown() == NOT_A_MISTAKE


def test_messages_show_the_line_and_a_repair() -> None:
    for path in CASES:
        text = expected(path) or ""
        if "[TL" in text:
            assert "  --> " in text, f"{path.name}: no line"
            assert "  try:      " in text, f"{path.name}: no repair"


def test_messages_hold_no_folder_of_this_machine() -> None:
    for path in CASES:
        assert str(Path(__file__).parents[2]) not in path.read_text(), path.name


def test_every_error_that_the_language_raises_says_how_to_repair() -> None:
    names = {error.__name__ for error in tilelang.errors.catalogue()}
    root = Path(tilelang.errors.__file__).parent
    silent = [
        f"{file.relative_to(root)}:{node.lineno}"
        for file in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        if not any(keyword.arg == "repair" for keyword in node.keywords)
    ]
    assert not silent
