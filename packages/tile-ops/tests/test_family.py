"""Families are found by their folders, and what they ship is what their plans choose from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tile_ops
from tile_ops.kernel import Target
from tile_ops.prebuild import ARCHS

TARGETS = [Target(kind, arch) for kind, archs in ARCHS.items() for arch in archs]
#: Kinds of targets, or architectures, on which a family's calls take the kernels of other products.
SERVED_BY_PRODUCTS = {
    "dequantize_cpu": {"cuda", "hip"},
    "dequantize_vectors": {"cuda", "hip"},
    "gemm_halves": {"cuda", "hip", "x86-64-v3", "x86-64-v4"},
    "gemm_in_place": {"cuda", "hip"},
    "gemm_pairs": {"cuda", "hip", "x86-64-v3", "x86-64-v4", "x86-64-v4+bf16+vnni"},
    "gemm_panels": {"cuda", "hip"},
    "gemm_thin": {"cpu"},
    "grouped_gemm_backward": {"cpu"},
}


def test_every_folder_with_kernels_is_a_family():
    folder = Path(tile_ops.__file__).parent
    found = {path.parent.name for path in folder.glob("*/kernels.py")} - {"kernel"}
    assert {family.name for family in tile_ops.families()} == found
    assert "normalization" in found


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("family", tile_ops.families(), ids=lambda family: family.name)
def test_a_family_ships_kernels_that_exist(family, target):
    specs = family.shipped(target)
    assert bool(specs) != bool({target.kind, target.arch} & SERVED_BY_PRODUCTS.get(family.name, set()))
    assert len(set(specs)) == len(specs)
    for spec in specs:  # some are another family's
        kernels = (Path(tile_ops.__file__).parent / spec.family / "kernels.py").read_text()
        assert f"\ndef {spec.function}(" in kernels, spec


def test_asking_what_is_shipped_loads_no_compiler():
    code = (
        "import sys, tile_ops\n"
        "from tile_ops.kernel import Target\n"
        "for family in tile_ops.families():\n"
        "    [family.shipped(Target(*name)) for name in (('cpu', 'x86-64-v3'), ('cuda', 'sm_90a'), ('hip', 'gfx942'))]\n"
        "print([m for m in ('tilelang', 'tvm', 'tile_compiler') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
