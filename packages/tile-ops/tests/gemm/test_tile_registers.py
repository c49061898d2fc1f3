"""Products of bfloat16 in the tile registers of a CPU."""

from __future__ import annotations

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.gemm import api, reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_halves import configs, kernels
from tile_ops.kernel import Target

AMX = Target("cpu", "x86-64-v4+bf16+vnni+amx")


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(37, 300, 513), (130, 257, 160), (70, 1000, 100)])
def test_agrees(in_registers, ran, close, m, n, k, turned):
    """Rows, columns and steps that fill no tile; NaN lies between all rows."""
    in_registers(api.MATMUL, api._matmul)
    shapes = ((k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    held = [torch.nn.functional.pad(torch.randn(*s), (0, 5), value=torch.nan).bfloat16()[:, :-5] for s in shapes]
    a, b = (x.T if name in turned else x for name, x in zip("ab", held))
    bias = torch.randn(n).bfloat16()
    call = tile_ops.explain(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    assert call.target == AMX
    assert [kernel.spec.family for kernel in call.kernels] == ["gemm_halves"] * (2 if "a" in turned else 1)
    for _ in range(3):  # the third call's kernels are prepared
        c = ran(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    close(c, reference.matmul(a, b, bias=bias, activation="gelu"), reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (9, 4096, 4096, (64, 128, 1024)),
        (64, 4096, 4096, (64, 128, 1024)),
        (65, 4096, 1025, (128, 128, 1024)),
        (129, 4096, 1024, (256, 256, 1024)),
        (256, 4096, 4096, (256, 256, 1024)),
        (257, 4096, 1024, (512, 64, 1024)),
        (257, 4096, 1025, (512, 256, 1024)),
        (5000, 64, 4096, (512, 64, 1024)),
        (200, 64, 4096, (512, 64, 1024)),
        (5000, 4096, 128, (64, 64, 256)),
        (8, 4096, 4096, None),
        (128, 128, 128, None),
    ],
)
def test_tiles(m, n, k, tile):
    for turned in ((False, False), (True, False)):
        problem = GemmProblem(1, m, n, k, "bfloat16", "bfloat16", *turned, "each", "each", None, None, False)
        found = dict(plan(problem, AMX).kernels)
        assert ("halves" in found) == (tile is not None)
        if tile is not None:
            arguments = dict(found["halves"].arguments)
            assert tuple(arguments[name] for name in ("block_m", "block_n", "block_k")) == tile
            assert set(found.values()) <= set(shipped(AMX))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("tile", [configs.IN_REGISTERS, configs.SHALLOW_IN_REGISTERS])
def test_nothing_is_copied(tile, transposes):
    found = configs.kernels(tile, "bfloat16", "bfloat16", "bfloat16", transposes)
    func = kernels.multiply(**dict(found["halves"].arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", AMX.arch)).trace.text()
    assert "A_tile" not in text
    assert "B_tile" not in text
    assert "tl.tiles.amx_bf16." in text
    assert ("tl.turn." in text) == transposes[1]
    assert ("tl.pairs." in text) != transposes[1]
