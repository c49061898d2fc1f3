"""Names that other versions of the language have: each is refused with what to write instead, which there is."""

from __future__ import annotations

import re

import pytest

import tilelang.language as T
from tilelang.errors import NotInThisRelease
from tilelang.language.elsewhere import INSTEAD


@pytest.mark.parametrize("name", INSTEAD)
def test_a_name_of_elsewhere(name):
    assert name not in T.__all__
    with pytest.raises(NotInThisRelease, match=rf"(?s)T\.{name} is not in this release.*try: +write ") as refused:
        getattr(T, name)
    instead = str(refused.value).partition("try:")[2]
    named = [n for n in re.findall(r"T\.(\w+)", instead) if n != "reduce_"]
    assert named
    assert [n for n in named if n not in T.__all__] == []


def test_a_name_of_nowhere():
    with pytest.raises(AttributeError, match="no attribute 'shufle'"):
        _ = T.shufle
