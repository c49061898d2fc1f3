"""Families are found by their folders, and what they ship is what their plans choose from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tile_ops
from tile_ops.prebuild import ARCHS

KINDS = sorted(ARCHS)


def test_every_folder_with_kernels_is_a_family():
    folder = Path(tile_ops.__file__).parent
    found = {path.parent.name for path in folder.glob("*/kernels.py")} - {"kernel"}
    assert {family.name for family in tile_ops.families()} == found
    assert "normalization" in found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", tile_ops.families(), ids=lambda family: family.name)
def test_a_family_ships_kernels_that_exist(family, kind):
    specs = family.shipped(kind)
    assert specs
    assert len(set(specs)) == len(specs)
    for spec in specs:  # some are another family's
        kernels = (Path(tile_ops.__file__).parent / spec.family / "kernels.py").read_text()
        assert f"\ndef {spec.function}(" in kernels, spec


def test_asking_what_is_shipped_loads_no_compiler():
    code = (
        "import sys, tile_ops\n"
        "for family in tile_ops.families():\n"
        "    [family.shipped(kind) for kind in ('cpu', 'cuda', 'hip')]\n"
        "print([m for m in ('tilelang', 'tvm', 'tile_compiler') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
