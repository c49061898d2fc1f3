"""Products of int8 on a CPU, where their operands lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tile_ops
from tile_ops.gemm import api, reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import Target

QUADS, AMX, AVX2 = (Target("cpu", f"x86-64-v{level}") for level in ("4+bf16+vnni", "4+bf16+vnni+amx", "3"))
SHAPES = [(1, 700, 300), (4, 257, 513), (7, 300, 260), (37, 300, 513), (130, 257, 160)]
MORE = [(3, 700, 300), (9, 130, 513), (16, 300, 1025), (300, 130, 1500), (600, 300, 65), (20, 1, 70), (9, 40, 1)]
SHAPES += [pytest.param(*shape, marks=pytest.mark.full) for shape in MORE]


def operands(m, n, k, turned):
    """Whole ranges of int8; other numbers lie between all rows."""
    shapes = (m, k), ((n, k) if turned else (k, n))
    held = [torch.randint(-128, 128, (rows, columns + 5), dtype=torch.int8)[:, :columns] for rows, columns in shapes]
    return held[0], held[1].T if turned else held[1]


def families(call):
    return {kernel.spec.family for kernel in call.kernels}


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_agrees(ran, m, n, k, turned):
    a, b = operands(m, n, k, turned)
    for _ in range(3):  # the third call's kernels are prepared
        assert torch.equal(ran(tile_ops.matmul, a, b), reference.matmul(a, b).int())


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("m", [64, pytest.param(512, marks=pytest.mark.full)])
def test_any_number_of_rows(ran, m):
    """One kernel for up to m rows, by blocks of two heights each; columns end in any vector of the two panels of a line. What
    lies behind the result is left alone."""
    for rows in [*range(33, 65)] if m == 64 else [257, 300, 411, 500, 512, 513, 540]:
        n, held = 300 + rows % 64, torch.full((rows + 14, 400), 7, dtype=torch.int32)
        a, b = operands(rows, n, 70, False)
        assert torch.equal(ran(tile_ops.matmul, a, b, out=held[:rows, :n]), reference.matmul(a, b).int()), (rows, n)
        assert torch.all(held[rows:] == 7), rows
        assert torch.all(held[:, n:] == 7), (rows, n)


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_agrees_in_tile_registers(in_registers, ran, m, n, k, turned):
    in_registers(api.MATMUL, api._matmul)
    a, b = operands(m, n, k, turned)
    call = tile_ops.explain(tile_ops.matmul, a, b)
    assert call.target == AMX
    assert families(call) == {"gemm_in_place" if turned and m <= 8 and n * k >= 1 << 16 else "gemm_halves" if not turned
                              or m >= 5 else "gemm"}  # fmt: skip
    for _ in range(3):
        assert torch.equal(ran(tile_ops.matmul, a, b), reference.matmul(a, b).int())


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", [False, True])
def test_several_matrices(ran, turned):
    """As many on both sides, and one b for all."""
    a = torch.randint(-128, 128, (3, 40, 200), dtype=torch.int8)
    b = torch.randint(-128, 128, (3, 130, 200) if turned else (3, 200, 130), dtype=torch.int8)
    b = b.mT if turned else b
    for left, right in ((a, b), (a, b[0]), (a[:, None], b[None, :2])):
        assert torch.equal(ran(tile_ops.matmul, left, right), (left.double() @ right.double()).int())


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shapes", [((), (300,)), ((7, 1), (300,))])
def test_scales_follow_sums(ran, close, shapes, biased):
    """Calls that come again find other scales, of one number and of rows."""
    a, b = operands(7, 300, 260, True)
    kernels = []
    for turn in range(4):
        options = {
            "scale_a": torch.rand(shapes[0]) + turn,
            "scale_b": torch.rand(shapes[1]) + 0.5,
            "activation": "silu",
        }
        options |= {"bias": torch.randn(300)} if biased else {}
        found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
        close(found, reference.matmul(a, b, **options), reference.TOLERANCES["float32"])
        call = tile_ops.explain(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
        kernels.append([kernel.spec.function for kernel in call.kernels])
    assert all(found in (["multiply_few", "scaled"], ["multiply", "scaled"], ["matmul"]) for found in kernels)


@pytest.mark.cpu("its kernels")
def test_scales_and_a_bias_that_are_copied(ran, close):
    """Rows of a in two dimensions, whose scales lie the other way round, and every second element of a vector."""
    a, b = operands(12, 300, 260, True)
    a = a.reshape(3, 4, 260)
    for _ in range(4):
        options = {"scale_a": torch.rand(4, 3).T, "scale_b": torch.rand(600)[::2], "bias": torch.randn(600)[::2]}
        found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
        close(found, reference.matmul(a, b, **options), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its registers")
@pytest.mark.parametrize("m", [2, 40])
def test_scales_follow_sums_in_tile_registers(in_registers, ran, close, m):
    in_registers(api.MATMUL, api._scaled_matmul)
    a, b = operands(m, 300, 260, True)
    for turn in range(4):
        options = {"scale_a": torch.rand(m) + turn, "scale_b": torch.rand(300)}
        assert len(tile_ops.explain(tile_ops.matmul, a, b, **options).kernels) == 2
        found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32, **options)
        close(found, reference.matmul(a, b, **options), reference.TOLERANCES["float32"])


@pytest.mark.parametrize("target", [QUADS, AMX, AVX2])
def test_kernels_of_sums_are_those_without_scales(target):
    for m, turned in ((1, True), (1, False), (40, True), (600, False)):
        problem = GemmProblem(1, m, 4096, 4096, "int8", "int32", False, turned, "each", "each", None, None, False)
        plain = dict(plan(problem, target).kernels)
        scaled = dict(plan(replace(problem, out_dtype="bfloat16", scales="rows"), target).kernels)
        if "product" in plain:  # by copied tiles, which are scaled as they are stored
            assert set(scaled) == {"product"}
            assert target is AVX2
        else:
            assert scaled.pop("scaled") in set(shipped(target))
            assert scaled == plain


@pytest.mark.parametrize(
    ("target", "m", "turned", "family", "tile"),
    [
        (QUADS, 1, True, "gemm_in_place", (1, 256, 2048)),
        (QUADS, 3, True, "gemm_in_place", (4, 256, 2048)),
        (QUADS, 1, False, "gemm_panels", (16, 256, 512)),
        (QUADS, 8, True, "gemm_in_place", (8, 256, 2048)),
        (QUADS, 32, True, "gemm_in_place", (16, 256, 2048)),
        (QUADS, 33, True, "gemm_panels", (64, 1024, 1024)),
        (QUADS, 16, False, "gemm_panels", (16, 256, 512)),
        (QUADS, 17, False, "gemm_panels", (32, 256, 512)),
        (QUADS, 33, False, "gemm_panels", (64, 1024, 1024)),
        (QUADS, 5000, True, "gemm_panels", (512, 1024, 1024)),
        (AMX, 2, True, "gemm_in_place", (2, 256, 2048)),
        (AMX, 8, True, "gemm_in_place", (8, 256, 2048)),
        (AMX, 9, True, "gemm_halves", (16, 128, 2048)),
        (AMX, 2, False, "gemm_halves", (16, 128, 2048)),
        (AMX, 65, True, "gemm_halves", (128, 128, 1024)),
        (AMX, 257, False, "gemm_halves", (512, 256, 1024)),
        (AVX2, 4, True, "gemm_in_place", (4, 256, 2048)),
        (AVX2, 5, True, "gemm", None),
    ],
)
def test_tiles(target, m, turned, family, tile):
    problem = GemmProblem(1, m, 4096, 4096, "int8", "int32", False, turned, "each", "each", None, None, False)
    (spec,) = dict(plan(problem, target).kernels).values()
    assert spec.family == family
    if tile is not None:
        assert tuple(dict(spec.arguments)[name] for name in ("block_m", "block_n", "block_k")) == tile
        assert spec in set(shipped(target))


def test_rows_of_c_that_begin_with_no_line_take_long_steps():
    for n, depth in ((1024, 512), (1000, 1024)):
        problem = GemmProblem(1, 20, n, 4096, "int8", "int32", False, False, "each", "each", None, None, False)
        (spec,) = dict(plan(problem, QUADS).kernels).values()
        assert dict(spec.arguments)["block_k"] == depth
