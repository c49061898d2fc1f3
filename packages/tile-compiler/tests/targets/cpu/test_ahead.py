"""What is fetched into the caches while a product runs: all of the next tiles, and nothing that changes a result."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tile_compiler.context import Ahead
from tile_compiler.targets.cpu.ahead import MOST_LINES, Share
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of
from tilelang.target import Target

AMX = Target("cpu", "x86-64-v4+bf16+vnni+amx")
m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")


def matmul(block: int = 64, turned: bool = False):
    @T.prim_func
    def main(
        A: T.Tensor((m, k), "bfloat16"),
        B: T.Tensor((n, k) if turned else (k, n), "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block)) as (x, y):
            a = T.alloc_shared((block, block), "bfloat16")
            b = T.alloc_shared((block, block), "bfloat16")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, block), num_stages=2):
                T.copy(A[y * block, step * block], a)
                if turned:
                    T.copy(B[x * block, step * block], b)
                else:
                    T.copy(B[step * block, x * block], b)
                T.gemm(a, b, c, transpose_B=turned)
            T.copy(c, C[y * block, x * block])

    return main


@pytest.mark.parametrize(("rows", "row_bytes"), [(256, 512), (512, 512), (256, 1024), (64, 128), (100, 200)])
@pytest.mark.parametrize(("blocks", "steps"), [(64, 8), (64, 16), (4, 2), (12, 3)])
def test_blocks_share_a_tile(rows, row_bytes, blocks, steps):
    """Together they fetch each line of each row, up to the most that a step takes."""
    lines = -(-row_bytes // 64)
    share = Share.of(Ahead(lambda row, byte: (row, byte), None, rows, row_bytes), blocks, steps)
    each, row = share.lines.each, share.lines.row
    fetched = set()
    for number in range(blocks):
        first = number * share.block
        for line in range(first, first + steps * each):
            # as the kernel counts: from where the block begins, in whole rows
            column = first % row + (line - first) % row
            assert column < row
            fetched.add((first // row + (line - first) // row, column))
    wanted = {(i, j) for i in range(rows) for j in range(lines)}
    assert each <= MOST_LINES
    assert wanted <= fetched or each == MOST_LINES
    assert wanted <= fetched or not share.whole
    assert each == 1 or len(fetched) <= 5 * len(wanted)


@pytest.mark.parametrize("turned", [False, True])
def test_the_next_tiles_of_both_operands_are_fetched(turned):
    module = lower(matmul(turned=turned), AMX)
    text = module.trace.text()
    found = set(re.findall(r"tl\.tiles\.amx_bf16\.([\d_]+)", text))
    assert {tuple(int(x) for x in name.split("_")[6:]) for name in found} == {(MOST_LINES, 2, MOST_LINES, 2)}


@pytest.mark.parametrize(("rows", "by_half"), [(128, True), (64, False)])
def test_of_b_half_of_the_rows_fetches_all(rows, by_half):
    """The others, which may not be there, fetch of A alone; where half of them cannot, all take their part."""
    pitch_a, pitch_b = T.dynamic("pitch_a"), T.dynamic("pitch_b")

    @T.prim_func
    def main(
        A: T.StridedTensor((m, k), (pitch_a, 1), "bfloat16"),
        B: T.StridedTensor((n, k), (pitch_b, 1), "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, rows)) as (x, y):
            sums = T.alloc_fragment((rows, 64), "float32")
            for step in T.serial(T.ceildiv(k, 256)):
                at = slice(step * 256, step * 256 + 256)
                T.gemm(
                    A[y * rows : y * rows + rows, at],
                    B[x * 64 : x * 64 + 64, at],
                    sums,
                    transpose_B=True,
                    clear_accum=step == 0,
                )
            T.copy(sums, C[y * rows, x * 64])

    text = lower(main, Target("cpu", "x86-64-v4+bf16+vnni")).trace.text()
    names = re.findall(r"tl\.gemm\.bf16\.([\d_]+)", text)
    assert {(len(name.split("_")) - 8) // 2 for name in names} == (
        {1, 2} if by_half else {2}
    )  # tiles that kernels fetch of
    # Of A the rows of the block after the next one, past the last row those of the next tile.
    calls = re.findall(r"\"tl\.gemm\.bf16\..*", text)
    assert all(re.search(r"T\.Select\(.* \+ T\.int64\((10|12)\) \+ ", call) for call in calls)


def places(body) -> str:
    """The calls of a product of panels whose place `body(item, count, table)` tells, after their operands."""

    @T.prim_func
    def main(
        A: T.Tensor((m, 64), "float32"),
        B: T.Tensor((64, n), "float32"),
        table: T.Tensor((T.dynamic("pages"),), "int32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, 64)) as x:
            a = T.alloc_shared((64, 64), "float32")
            for item in T.serial(T.ceildiv(n, 32)):
                first, column = body(item, table)
                T.assume((first >= 0) & (column >= 0))
                if first == 0:
                    T.copy(A[x * 64, 0], a)
                T.gemm(
                    a, B[0:64, column : column + 32], C[x * 64 : x * 64 + 64, column : column + 32], clear_accum=True
                )

    return "\n".join(re.findall(r"\"tl\.gemm\.f32\..*", lower(main, Target("cpu", "x86-64-v3")).trace.text()))


def test_a_round_may_give_the_place_a_name():
    found = places(lambda item, table: (item // T.min(m, n), item % T.min(m, n) * 32 + item // T.min(m, n) * 64))
    assert "T.address_of(B[" in found
    assert "item + 1" in found


def test_a_place_that_memory_decides_is_not_looked_up_ahead():
    """There may be no such number in the table."""
    found = places(lambda item, table: (item, table[item] * 32))
    assert "T.address_of(B[" in found
    assert "item + 1" not in found


def test_a_tile_that_no_loop_renews_is_not_fetched():
    @T.prim_func
    def once(A: T.Tensor((64, 64), "bfloat16"), B: T.Tensor((64, 64), "bfloat16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((64, 64), "bfloat16"), T.alloc_shared((64, 64), "bfloat16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.copy(A, a)
            for step in T.serial(2):
                T.copy(B, b)
                T.gemm(a, b, c)
            T.copy(c, C)

    names = re.findall(r"tl\.tiles\.amx_bf16\.([\d_]+)", lower(once, AMX).trace.text())
    assert {len(name.split("_")) for name in names} == {6}


@pytest.mark.parametrize("shape", [(64, 128, 192), (70, 45, 100), (1, 1, 1)], ids=str)
def test_results_where_tiles_leave_their_tensors(shape):
    rng, (rows, cols, depth) = np.random.default_rng(3), shape
    a, b = (numerics.convert(rng.standard_normal(s), dtype_of("bfloat16")) for s in ((rows, depth), (depth, cols)))
    c = np.zeros((rows, cols), np.float32)
    kernel = tilelang.compile(matmul(), target="cpu")
    kernel(a, b, c)
    exact = a.astype("f8") @ b.astype("f8")
    assert np.abs(c - exact).max() <= 2e-6 * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))).max()
