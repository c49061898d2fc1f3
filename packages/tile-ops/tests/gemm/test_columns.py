"""Products by one column, of one, and of few elements along k, which a CPU multiplies by kernels of their own."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.gemm import few_rows, reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import Target
from tile_ops.kernel.kernels import build

pytestmark = pytest.mark.cpu("its own kernels")


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def agrees(ran, close):
    def check(a, b, function=None, **options):
        """By kernels of this name alone, if one is given."""
        explained = tile_ops.explain(tile_ops.matmul, a, b, **options)
        if function is not None:
            assert [kernel.spec.function for kernel in explained.kernels] == [function]
        found = ran(tile_ops.matmul, a, b, **options)
        expected = reference.matmul(a, b, **{name: x for name, x in options.items() if name != "out_dtype"})
        close(found, expected, reference.TOLERANCES[str(a.dtype).removeprefix("torch.")])

    return check


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_one_column(agrees, dtype, turned):
    """Blocks of rows that are whole and not; sums of no, some and all lanes; registers' worth of k and rests."""
    for m, k in ((2, 1), (7, 15), (8, 16), (9, 17), (33, 64), (20, 135), (600, 40), (3, 700)):
        a = normal(k, m, dtype=dtype).T if turned else normal(m, k, dtype=dtype)
        b = normal(k, 1, dtype=dtype, seed=1)
        agrees(a, b, "multiply_column")
        agrees(a, b, "multiply_column", bias=normal(1, dtype=dtype, seed=2), activation="silu")
        agrees(a, normal(1, k, dtype=dtype, seed=1).T, "multiply_column", out_dtype=torch.float32)


def test_a_column_of_no_elements_is_the_bias():
    found = tile_ops.matmul(normal(5, 0), normal(0, 1), bias=torch.tensor([2.0]))
    assert torch.equal(found, torch.full((5, 1), 2.0))


def test_columns_of_several_matrices(agrees):
    """Each by its own, all by one, one by each, and in groups; of one row, too."""
    a, b = normal(2, 3, 20, 40), normal(2, 3, 40, 1, seed=1)
    agrees(a[:, :, :1], b, "multiply_column")
    agrees(normal(9, 1, 1), normal(9, 1, 1, seed=1), "multiply_column")
    for left, right in ((a, b), (a, b[0, 0]), (a[0, 0], b), (a, b[:, :1]), (a, b[:1]), (a.mT.contiguous().mT, b)):
        agrees(left, right, "multiply_column")


def test_a_column_that_lies_across_and_a_result_with_a_pitch(agrees, close):
    """Another kernel where it is one of a matrix's; results that are one are written where they lie."""
    a, weights = normal(30, 50), normal(50, 7, seed=1)
    agrees(a, weights[:, 3:4])
    out = torch.full((30, 5), 7.0)
    tile_ops.matmul(a, weights[:, 3:4].contiguous(), out=out[:, 2:3])
    close(out[:, 2:3], reference.matmul(a, weights[:, 3:4]), reference.TOLERANCES["float32"])
    assert (out[:, [0, 1, 3, 4]] == 7).all()


def test_infinite_numbers_stay_in_their_rows(ran):
    """What lies in a row before the last lanes is read twice, and counts once, of either operand."""
    a, b = normal(9, 21), normal(21, 1, seed=1).abs() + 1
    a[4, 14] = torch.inf
    found = ran(tile_ops.matmul, a, b)
    assert found[4, 0] == torch.inf
    assert found.isfinite().sum() == 8
    a[4, 14], b[14] = 1.0, torch.inf
    assert torch.equal(ran(tile_ops.matmul, a, b)[:, 0], torch.inf * a[:, 14].sign())


def test_layers_of_one_number_learn(close):
    """Their gradients are outer products, and sums over rows."""
    for m, n, k in ((40, 1, 70), (40, 70, 1), (1, 70, 1), (1, 33, 130)):
        x, w, bias = (t.requires_grad_() for t in (normal(m, k), normal(n, k, seed=1), normal(n, seed=2)))
        dy = normal(m, n, seed=3)
        found = torch.autograd.grad(tile_ops.matmul(x, w.T, bias=bias), (x, w, bias), dy)
        for one, other in zip(found, (dy @ w, dy.T @ x, dy.sum(0))):
            close(one, other.detach().double(), reference.TOLERANCES["float32"])


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_columns_come_again(monkeypatch, close, turned):
    for turn in range(5):
        if turn == 4:
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        a = normal(40, 30, seed=turn).T if turned else normal(30, 40, seed=turn)
        b, bias = normal(40, 1, seed=turn + 9), normal(1, seed=turn)
        expected = reference.matmul(a, b, bias=bias)
        close(tile_ops.matmul(a, b, bias=bias), expected, reference.TOLERANCES["float32"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_by_few_elements(agrees, dtype):
    """No, a few and many rows of a tile, with what ends a product; columns that fill no tile."""
    for m, n, k in ((1, 300, 1), (2, 40, 1), (5, 90, 8), (9, 70, 8), (40, 200, 3), (130, 34, 8), (70, 300, 27)):
        a, b, bias = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1), normal(n, dtype=dtype, seed=2)
        agrees(a, b.T)
        agrees(a, b.T.contiguous(), bias=bias)
        for activation in ("relu", "gelu", "silu"):
            agrees(a, b.T, bias=bias, activation=activation)
        agrees(a, b.T, activation="gelu")


def test_one_row_by_columns_that_fill_no_block(agrees):
    """In parts along k, too, and what is left of these."""
    for m, n, k in ((1, 70, 9), (1, 520, 40), (2, 1032, 21), (1, 600, 1003), (4, 300, 7)):
        agrees(normal(m, k), normal(k, n, seed=1))


@pytest.mark.parametrize("k", [1, 2, 8])
def test_rows_of_few_steps_are_written_one_by_one(agrees, close, k):
    """Blocks of rows and columns that are whole and not, what ends a product, any way that operands lie, a result's pitch."""
    for m, n in ((8, 2), (9, 600), (130, 77), (300, 2100)):
        a, b, bias = normal(m, k), normal(n, k, seed=1), normal(n, seed=2)
        agrees(normal(m, k + 3)[:, :k], b.T, "multiply_shallow", bias=bias)
        if k == 2:
            agrees(a.T.contiguous().T, b.T, "multiply_shallow", bias=bias)
            agrees(a, b.T.contiguous(), "multiply_shallow", bias=bias)
        for activation in ("relu", "gelu", "silu"):
            agrees(a, b.T, "multiply_shallow", bias=bias, activation=activation)
        agrees(a, b.T, "multiply_shallow", activation="gelu")
        if k <= 2 and n >= 512:
            agrees(a, b.T, "multiply_shallow")
            agrees(a.T.contiguous().T, b.T.contiguous(), "multiply_shallow")
        out = torch.full((m, n + 3), 7.0)
        tile_ops.matmul(a, b.T, bias=bias, out=out[:, 1:-2])
        close(out[:, 1:-2], reference.matmul(a, b.T, bias=bias), reference.TOLERANCES["float32"])
        assert (out[:, [0, -2, -1]] == 7).all()


def test_rows_of_few_steps_of_several_matrices(agrees):
    """Each by its own, all by one, one by each, and in groups."""
    a, b, bias = normal(2, 3, 20, 2), normal(2, 3, 2, 600, seed=1), normal(600, seed=2)
    for left, right in ((a, b), (a, b[0, 0]), (a[0, 0], b), (a, b[:, :1]), (a, b[:1]), (a.mT.contiguous().mT, b)):
        agrees(left, right, bias=bias)
        agrees(left, right)


def test_numbers_that_are_none_stay_in_their_rows_and_columns(ran):
    a, b, bias = normal(20, 2), normal(2, 40, seed=1), normal(40, seed=2)
    a[4, 1], b[0, 7], bias[9] = torch.nan, torch.inf, torch.nan
    found = ran(tile_ops.matmul, a, b, bias=bias).isfinite()
    assert not found[4].any()
    assert not found[:, [7, 9]].any()
    assert found.sum() == 19 * 38


def test_columns_that_are_not_there_are_not_looked_at():
    """One by one, that is: what is beside a vector's lanes would be."""
    spec = few_rows.kernels(problem(1, 520, 1232, transpose_b=False), Target("cpu", "x86-64-v3"))["parts"]
    text = build(spec, "cpu", "x86-64-v3").source or ""
    body = text[text.index("for step in") : text.index("rest: ")]
    assert "vectorized" in body
    assert "if_then_else" not in body
    assert not re.search(r"for j in range\(1024 - ", body)


def test_one_element_along_k_takes_no_rows_for_columns():
    for m, function in ((1, "gemv_columns"), (2, "gemv_columns"), (30, "multiply")):
        (kernel,) = tile_ops.explain(tile_ops.matmul, normal(m, 1), normal(1, 300)).kernels
        assert kernel.spec.function == function
        assert not dict(kernel.spec.arguments).get("transpose_a", False)


def problem(m, n, k, dtype="float32", transpose_a=False, transpose_b=True, bias=None):
    turned = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    given = {"batch": 1, "batch_a": "each", "batch_b": "each", "bias": bias, "activation": None, "tf32": False}
    return GemmProblem(m=m, n=n, k=k, dtype=dtype, out_dtype=dtype, **given | turned)


def test_plans_of_columns_are_shipped():
    def kernels(*sizes, arch="x86-64-v3", **others):
        kind = "cuda" if arch.startswith("sm") else "cpu"
        specs = dict(plan(problem(*sizes, **others), Target(kind, arch)).kernels)
        if kind == "cpu":
            assert there[arch].issuperset(specs.values())
        return {spec.function: dict(spec.arguments) for spec in specs.values()}

    there = {arch: set(shipped(Target("cpu", arch))) for arch in ("x86-64-v3", "x86-64-v4+bf16+vnni+amx")}
    for arch, lanes in (("x86-64-v3", 8), ("x86-64-v4+bf16+vnni+amx", 16)):
        for dtype in ("float32", "float16", "bfloat16"):
            for k, rows in ((4 * lanes - 1, 16), (4 * lanes, 8)):
                found = kernels(100, 1, k, dtype, arch=arch)["multiply_column"]
                assert (found["block_m"], found["lanes"]) == (rows, lanes)
            assert kernels(100, 1, 9, dtype, transpose_a=True, arch=arch)["multiply_column"]["block_m"] == 512
    for m, n, others in ((1, 1, {}), (100, 2, {}), (100, 1, {"transpose_b": False}), (100, 1, {"arch": "sm_90a"})):
        assert "multiply_column" not in kernels(m, n, 50, **others)
    for n, k, others in (
        (600, 1, {}),
        (600, 2, {"transpose_b": False}),
        (600, 2, {"transpose_a": True, "transpose_b": False}),
    ):
        assert "multiply_shallow" in kernels(8, n, k, **others)
    for m, n, k, others in (
        (8, 600, 3, {}), (8, 500, 2, {}), (7, 600, 2, {}), (8, 600, 9, {"bias": "float32"}), (8, 1, 1, {"bias": "float32"}),
        (8, 600, 2, {"dtype": "bfloat16"}), (8, 600, 2, {"arch": "sm_90a"}),
    ):  # fmt: skip
        assert "multiply_shallow" not in kernels(m, n, k, **others)
    for k in (1, 2, 8):
        assert "multiply_shallow" in kernels(8, 2, k, bias="float32")
    halves = [kernels(m, 90, k, "bfloat16") for m, k in ((2, 8), (3, 8), (8, 16))]
    assert ["gemv_rows" in found for found in halves] == [True, False, True]
