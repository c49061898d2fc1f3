"""grouped_matmul agrees with its reference for any sizes of groups, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.grouped_gemm import configs, reference
from tile_ops.grouped_gemm.api import GROUPED_MATMUL
from tile_ops.grouped_gemm.configs import plan, shipped
from tile_ops.grouped_gemm.kernels import product
from tile_ops.grouped_gemm.problem import GroupedProblem
from tile_ops.kernel import Target


def operands(tokens, groups, n, k, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x, weights = torch.randn(tokens, k, generator=generator), torch.randn(groups, k, n, generator=generator)
    return x.to(dtype), weights.to(dtype)


@pytest.mark.amd_in_full
def test_agrees_with_the_reference(way, ran, close):
    """Groups without rows, with less and with more than a tile, and rows that belong to none; transposed weights."""
    x, weights = operands(90, 5, 72, 40, torch.float16)
    weights = weights.mT.contiguous().mT
    sizes = torch.tensor([3, 0, 68, 1, 7])
    found = ran(tile_ops.grouped_matmul, x, weights, sizes)
    close(found, reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["float16"])
    assert (found[79:] == 0).all()


@pytest.mark.full
def test_large_tiles_of_hopper(run_as, ran, close):
    """Tiles side by side in panels, slots without rows among them."""
    run_as("cuda -arch=sm_90a")
    x, weights = operands(200, 2, 64, 72, torch.bfloat16)
    sizes = torch.tensor([140, 50])
    spec = tile_ops.explain(tile_ops.grouped_matmul, x, weights, sizes).kernels[1].spec
    assert dict(spec.arguments)["panel"] > 0
    found = ran(tile_ops.grouped_matmul, x, weights, sizes)
    close(found, reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize("sizes", [[200], [0, 0, 200], [64, 128, 8], [0, 0], [199, 1]])
def test_sizes(ran, close, sizes):
    x, weights = operands(200, len(sizes), 40, 24)
    sizes = torch.tensor(sizes, dtype=torch.int32)
    # Where a CPU multiplies each group by itself, none is nothing to do.
    call = ran if sizes.any() else lambda function, *args: function(*args)
    found = call(tile_ops.grouped_matmul, x, weights, sizes)
    close(found, reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its tiles")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.full)])
@pytest.mark.parametrize("average", [5, 60, *(pytest.param(rows, marks=pytest.mark.full) for rows in (1, 12, 30, 130))])
def test_groups_of_any_size_on_a_cpu(ran, close, average, dtype, transposed):
    """Of less, as much and more than a tile; columns and steps that divide no tile; no row of another group counts."""
    x, weights = (part.to(dtype) for part in operands(4 * average, 4, 270, 520))
    weights = weights.mT.contiguous().mT if transposed else weights
    sizes = torch.tensor([average, 0, 2 * average, average - 1])
    x[-1] = torch.nan  # behind the last group
    found = ran(tile_ops.grouped_matmul, x, weights, sizes)
    exact = reference.grouped_matmul(x, weights, sizes)
    close(found, exact, reference.TOLERANCES[str(dtype).removeprefix("torch.")])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("average", [1, 5, 12, 30, 60, 130])
def test_copied_tiles_of_a_cpu_are_as_high_as_a_group_on_average(average, transposed):
    problem = GroupedProblem(4 * average, 4, 520, 270, "float32", "float32", "int64", transposed)
    spec = dict(plan(problem, Target("cpu", "x86-64-v3")).kernels)["product"]
    assert "copies" not in dict(spec.arguments)
    assert average <= dict(spec.arguments)["block_m"] <= max(4, 2 * average - 1) or average > 128


@pytest.mark.parametrize(
    ("level", "dtype", "transposed", "heights"),
    [
        ("", "float32", False, {1: 4, 4: 4, 5: 8, 8: 8, 9: 16, 2000: 16}),
        ("", "float32", True, {4: 4, 5: 8, 5000: 8}),
        ("+bf16+vnni", "bfloat16", False, {1: 8, 8: 8, 9: 32, 128: 32, 129: 64}),
        ("+bf16+vnni", "bfloat16", True, {4: 4, 128: 8, 129: 64}),
        ("+bf16+vnni+amx", "float32", False, {1: 8, 8: 8, 9: 16, 255: 16, 256: 32}),
        ("+bf16+vnni+amx", "bfloat16", True, {16: 16, 17: 32, 24: 32, 25: 64, 56: 64, 57: 128}),
    ],
)
def test_weights_are_read_where_they_lie(level, dtype, transposed, heights):
    target = Target("cpu", f"x86-64-v4{level}")
    for average, height in heights.items():
        problem = GroupedProblem(8 * average, 8, 64, 80, dtype, dtype, "int32", transposed)
        kernels = dict(plan(problem, target).kernels)
        arguments = dict(kernels["product"].arguments)
        assert arguments["block_m"] == height
        assert set(kernels.values()) <= set(shipped(target))
        text = tile_compiler.lower(product(**arguments), tilelang.target.Target("cpu", target.arch)).trace.text()
        assert "weights_tile" not in text
        assert ("X_tile" in text) == (arguments["copies"] == "rows")


@pytest.mark.cpu("its products")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.full)])
@pytest.mark.parametrize("out_dtype", [None, pytest.param(torch.float32, marks=pytest.mark.full)])
def test_groups_with_much_to_do_are_products_of_their_own(ran, close, monkeypatch, dtype, transposed, out_dtype):
    """By the kernels for the average number of rows, whatever a group has: no row, one, most of them; twice, as others come."""
    for name in ("WORK", "WORK_BY_ROWS"):
        monkeypatch.setattr(configs, name, 2**20)
    GROUPED_MATMUL.plan.cache_clear()
    x, weights = (part.to(dtype) for part in operands(40 * 5, 5, 278, 520))  # of no other test: plans are kept
    weights = weights.mT.contiguous().mT if transposed else weights
    for sizes in ([150, 0, 1, 7, 40], [3, 30, 0, 100, 11]):
        sizes = torch.tensor(sizes)
        found = ran(tile_ops.grouped_matmul, x, weights, sizes, out_dtype=out_dtype)
        tolerance = reference.TOLERANCES[str(dtype).removeprefix("torch.")]
        close(found, reference.grouped_matmul(x, weights, sizes).to(found.dtype), tolerance)
    roles = [kernel.role for kernel in tile_ops.explain(tile_ops.grouped_matmul, x, weights, sizes).kernels]
    assert "schedule" not in roles


@pytest.mark.cpu("its products")
def test_a_row_has_nothing_to_do_with_its_groups_size():
    """Equal bits for equal rows, tokens and weights, in a group of 90 rows and of 10."""
    x, weights = operands(100, 2, 1024, 768)
    weights[1] = weights[0]
    first, second = (tile_ops.grouped_matmul(x, weights, torch.tensor(sizes)) for sizes in ([90, 10], [10, 90]))
    assert torch.equal(first, second)


def test_more_groups_than_are_read_at_once(ran, close):
    x, weights = operands(600, 300, 16, 8)
    sizes = torch.arange(300) % 4
    found = ran(tile_ops.grouped_matmul, x, weights, sizes)
    close(found, reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["float32"])


def test_sizes_that_exceed_the_rows_are_cut(ran, close):
    x, weights = operands(200, 3, 40, 24)
    found = ran(tile_ops.grouped_matmul, x, weights, torch.tensor([150, 100, 7]))
    expected = reference.grouped_matmul(x, weights, torch.tensor([150, 50, 0]))
    close(found, expected, reference.TOLERANCES["float32"])


def test_strided_rows_and_another_result(ran, close):
    x, weights = operands(200, 3, 40, 48, torch.bfloat16)
    x, weights, sizes = x[:, 8:32], weights[:, 8:32], torch.tensor([20, 100, 80])
    found = ran(tile_ops.grouped_matmul, x, weights, sizes, out_dtype=torch.float32)
    close(found, reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["float32"])


def test_empty():
    x, weights = operands(6, 2, 4, 3)
    sizes = torch.tensor([4, 2])
    assert tile_ops.grouped_matmul(x[:0], weights, sizes).shape == (0, 4)
    assert (tile_ops.grouped_matmul(x[:, :0], weights[:, :0], sizes) == 0).all()
    assert (tile_ops.grouped_matmul(x, weights[:0], sizes[:0]) == 0).all()


def test_is_a_torch_operator(close):
    x, weights = operands(20, 2, 24, 16)
    sizes = torch.tensor([4, 16])
    torch.library.opcheck(torch.ops.tile_ops.grouped_matmul.default, (x, weights, sizes, None))
    compiled = torch.compile(
        lambda x: 2 * tile_ops.grouped_matmul(x, weights, sizes), fullgraph=True, backend="aot_eager"
    )
    close(compiled(x), 2 * reference.grouped_matmul(x, weights, sizes), reference.TOLERANCES["float32"])


X, W, S = torch.ones(6, 3), torch.ones(2, 3, 4), torch.tensor([4, 2])


@pytest.mark.parametrize(
    ("x", "weights", "sizes", "error", "text"),
    [
        (X[0], W, S, WrongShape, "expected (tokens, k), (groups, k, n), (groups,)"),
        (X, W.mT, S, WrongShape, "do not fit"),
        (X, W, S[:1], WrongShape, "1 group_sizes do not fit"),
        (X, W.half(), S, WrongDtype, "x is torch.float32, weights torch.float16"),
        (X, W, S.float(), WrongDtype, "group_sizes is torch.float32"),
    ],
)
def test_refuses(x, weights, sizes, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.grouped_matmul(x, weights, sizes)
