"""The surface table: every case in every mode, and the table itself."""

from types import ModuleType

import pytest
import surface_page
from surface_cases import CASES, MODES
from surface_cases.names import MISSING, REQUIRED

import tilelang.language as T

NAMES = {name for case in CASES for name in case.names}

CELLS = [
    pytest.param(case, mode, id=f"{case.family}-{case.title}-{mode}".replace(" ", "_"))
    for case in CASES
    for mode in MODES
    if mode not in case.empty
]


@pytest.mark.parametrize(("case", "mode"), CELLS)
def test_case(case, mode):
    case.run(mode)


def test_every_required_name_is_in_the_table():
    assert [name for name in REQUIRED if name not in NAMES and name not in MISSING] == []
    assert [name for name in MISSING if name in NAMES] == []


def test_every_public_name_of_the_language_is_in_the_table():
    public = {f"T.{name}" for name in T.__all__ if not isinstance(getattr(T, name), ModuleType)}
    assert sorted(public - NAMES) == []


def test_the_page_is_current():
    assert surface_page.PAGE.read_text() == surface_page.page(), "python tests/surface/surface_page.py --write"
