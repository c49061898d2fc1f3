"""Products by one column and of few rows, which GPUs multiply without matrix instructions."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.gemm import reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_thin import configs
from tile_ops.kernel import Target

H200 = Target("cuda", "sm_90a")


def normal(*shape, dtype=torch.float16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def agrees(ran, close, device):
    def check(a, b, functions, **options):
        """By these kernels alone."""
        there = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
        explained = tile_ops.explain(tile_ops.matmul, a.to(device), b.to(device), **there)
        assert [kernel.spec.function for kernel in explained.kernels] == functions
        found = ran(tile_ops.matmul, a, b, **options)
        expected = reference.matmul(a, b, **{name: x for name, x in options.items() if name != "out_dtype"})
        close(found, expected, reference.TOLERANCES[str(a.dtype).removeprefix("torch.")])

    return check


@pytest.fixture(params=["cuda -arch=sm_90a", pytest.param("hip -mcpu=gfx942", marks=pytest.mark.full)])
def gpu(request, run_as):
    run_as(request.param)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_one_column(gpu, agrees, dtype):
    """Rows that fill a block and not, of whole vectors and not, of one step along k and several."""
    for m, k in ((1, 2), (7, 15), (33, 264), (50, 1300), (5, 2056)):
        a, b = normal(m, k, dtype=dtype), normal(k, 1, dtype=dtype, seed=1)
        agrees(a, b, ["column"])
    agrees(a, b, ["column"], bias=normal(1, dtype=dtype, seed=2), activation="silu")
    agrees(a, b, ["column"], out_dtype=torch.float32)


def test_columns_of_several_matrices(gpu, agrees):
    """Each by its own, all by one, one by each."""
    a, b = normal(2, 3, 20, 40), normal(2, 3, 40, 1, seed=1)
    agrees(a, b, ["column"])
    agrees(a, b[0, 0], ["column"])
    agrees(a[0, 0], b, ["column"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_few_rows_by_rows_that_begin_anywhere(gpu, agrees, dtype):
    for m, n, k in ((1, 3, 2), (2, 67, 65), (3, 129, 200), (4, 5, 333)):
        a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
        agrees(a, b, ["row_parts", "combine"])
    agrees(a, b, ["row_parts", "combine"], bias=normal(n, dtype=dtype, seed=2), activation="gelu")
    agrees(normal(1, k, dtype=dtype), normal(k, 7, dtype=dtype), ["row_parts", "combine"])


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_up_to_eight_rows_of_float32(run_as, agrees, turned):
    """Which three products of tf32 would make by matrix instructions, and a row has the same sums beside any others."""
    run_as("cuda -arch=sm_90a")
    functions = ["gemv"] if turned else ["row_parts", "combine"]
    for m, n, k in ((5, 67, 515), (8, 33, 1030), (7, 40, 2048)):
        a, b = normal(m, k, dtype=torch.float32), normal(n, k, dtype=torch.float32, seed=1)
        b = b.T if turned else b.T.contiguous()
        agrees(a, b, functions)
    agrees(a, b, functions, bias=normal(n, dtype=torch.float32, seed=2), activation="gelu")
    whole = tile_ops.matmul(a, b)
    for rows in (1, 2, 4, 5):
        assert torch.equal(tile_ops.matmul(a[:rows], b), whole[:rows])


def test_a_bias_s_gradient_is_a_row_of_ones_by_the_rows(gpu, close, device):
    """What a layer of an odd number of outputs takes in training."""
    if device == "cpu":  # the operands lie here, as on a GPU that is emulated
        explained = tile_ops.explain(tile_ops.matmul, normal(1, 70), normal(70, 7))
        before = explained.launches
    x, w = normal(70, 16).requires_grad_(), normal(7, 16, seed=1).requires_grad_()
    bias, slopes = normal(7, seed=2).requires_grad_(), normal(70, 7, seed=3)
    tile_ops.matmul(x, w.T, bias=bias).backward(slopes)
    close(bias.grad, slopes.double().sum(0), reference.TOLERANCES["float16"])
    if device == "cpu":
        explained = tile_ops.explain(tile_ops.matmul, normal(1, 70), normal(70, 7))
        assert [kernel.spec.function for kernel in explained.kernels] == ["row_parts", "combine"]
        assert explained.launches > before


def test_a_row_has_the_same_sums_beside_others(gpu):
    a, b = normal(4, 300), normal(300, 77, seed=1)
    whole = tile_ops.matmul(a, b)
    for rows in (1, 2, 3):
        assert torch.equal(tile_ops.matmul(a[:rows], b), whole[:rows])


def problem(m, n, k, dtype="float16", **flags):
    flags = {"transpose_a": False, "transpose_b": False, "tf32": False, **flags}
    return GemmProblem(1, m, n, k, dtype, dtype, batch_a="each", batch_b="each", bias=None, activation=None, **flags)


def test_matrix_instructions_keep_what_they_do_well():
    """More rows, whole rows of halves, a transposed a; bytes have no such kernels."""
    for other in (
        problem(5, 67, 4096),
        problem(4, 64, 4096),
        problem(64, 1, 4096, transpose_a=True, transpose_b=True),
        problem(4, 67, 4096, dtype="int8"),
    ):
        assert not any(spec.family == configs.FAMILY for _, spec in plan(other, H200).kernels)
    for few in (problem(4, 64, 4096, dtype="float32"), problem(2, 8904, 3271), problem(1, 2044, 1184)):
        assert [spec.function for _, spec in plan(few, H200).kernels] == ["row_parts", "combine"]


def test_few_rows_with_little_to_add_up_are_for_matrix_instructions():
    def by_gemv(m, k, **options):
        return [spec.function for _, spec in plan(problem(m, 4096, k, transpose_b=True, **options), H200).kernels] == [
            "gemv"
        ]

    assert [by_gemv(1, k) for k in (384, 392)] == [False, True]
    assert [by_gemv(4, k) for k in (512, 520)] == [False, True]
    assert [by_gemv(1, k, dtype="float32") for k in (128, 132)] == [False, True]
    assert [by_gemv(8, k, dtype="float32") for k in (256, 260)] == [False, True]
    assert [by_gemv(m, 4096) for m in (4, 5)] == [True, False]
    exact = [by_gemv(m, 4096, dtype="float32", tf32=tf32) for m, tf32 in ((8, False), (9, False), (4, True), (5, True))]
    assert exact == [True, False, True, False]
    rounded = plan(problem(5, 4096, 4096, dtype="float32", tf32=True), H200)
    assert not any(spec.family == configs.FAMILY for _, spec in rounded.kernels)


def test_long_sums_of_few_columns_have_parts_for_a_chip():
    """Of two steps at least, and no more of them than are added in the time of their steps."""
    for n, k in ((3, 100000), (32, 8991), (2044, 1184), (50257, 768), (1, 1)):
        numbers = configs.parts(problem(1, n, k))
        steps, blocks = -(-k // configs.BLOCK_K), -(-n // configs.BLOCK_N)
        assert numbers["splits"] * numbers["steps"] >= steps > (numbers["splits"] - 1) * numbers["steps"]
        assert numbers["steps"] == configs.LEAST_STEPS or numbers["splits"] * blocks <= configs.BLOCKS + blocks
        assert numbers["splits"] <= max(1, configs.ADDED * numbers["steps"])


def test_wheels_hold_them():
    for target in (H200, Target("cuda", "sm_80"), Target("hip", "gfx942")):
        held = set(shipped(target))
        for given in (
            problem(9, 1, 64, transpose_b=True),
            problem(2, 3, 64),
            problem(7, 3, 64, dtype="float32"),
            problem(9, 1, 2000, transpose_b=True),
        ):
            assert {spec for _, spec in plan(given, target).kernels} <= held
