"""An older transformers is refused, before its models are computed wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tile_ops.integrations.transformers.releases import OLDEST, check


@pytest.mark.parametrize("version", ["5.22.0", "5.23.0.dev0", "5.100.1", "6.0"])
def test_known_releases(version):
    check(version)


@pytest.mark.parametrize("version", ["5.21.1", "5.8.1", "4.57.6"])
def test_older_releases_are_refused(version):
    with pytest.raises(ImportError, match=re.escape(f"this is {version}") + ".*pip install 'transformers>=5.22'"):
        check(version)


def test_the_extra_asks_for_them():
    written = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert f'transformers = ["transformers>={OLDEST[0]}.{OLDEST[1]}"]' in written
