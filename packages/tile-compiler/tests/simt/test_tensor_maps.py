"""Which layouts tiles have that bulk copies fill."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.tensor_maps import preferred_layout
from tilelang.layout import make_linear_layout


@pytest.mark.parametrize("version", [0, tir.Var("step", "int32") % 2], ids=["ahead of the loop", "in the loop"])
def test_versions_of_a_vector_follow_each_other(version):
    """Whichever copy comes first: they are no rows of a matrix, which would be swizzled."""
    buffer = tir.decl_buffer((2, 64), "float32", name="base", scope="shared", layout=None)
    one = ir.Range.from_min_extent(version, 1)
    region = SimpleNamespace(source=buffer, region=[one, ir.Range.from_min_extent(0, 64)])
    assert preferred_layout(region) == make_linear_layout((2, 64))
