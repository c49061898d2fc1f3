"""Gradients of norms and softmax agree with autograd through the references in float64, on every way to run them."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongStride
from tile_ops.kernel import Target
from tile_ops.normalization import reference
from tile_ops.normalization.problem import DTYPES, NormProblem
from tile_ops.normalization_backward.api import (
    LAYER_NORM_BACKWARD,
    RMS_NORM_BACKWARD,
    SOFTMAX_BACKWARD,
    rms_norm_backward,
)
from tile_ops.normalization_backward.configs import plan, shipped
from tile_ops.normalization_backward.problem import NormBackwardProblem
from tile_ops.normalization_backward.reference import TOLERANCES

# Some rows to a tile; several tiles to a part; longer than a block holds.
SHAPES = [(5, 160), (2, 67, 40), pytest.param((3, 8704), marks=pytest.mark.gpus_in_full)]


def normal(*shape, dtype=torch.float32, seed=0):
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def gradients(function, operands, dtype=None, **options):
    """Of a sum of the results with random weights; None for an operand that requires none."""
    operands = [x.detach().to(dtype or x.dtype).requires_grad_(x.requires_grad) for x in operands]
    result = function(*operands, **options)
    (result * normal(*result.shape, dtype=torch.float16, seed=9).to(result.dtype)).sum().backward()
    return [x.grad for x in operands]


def agree(close, name, *operands, tolerance=None, **options):
    operands = [x.requires_grad_() for x in operands]
    found = gradients(getattr(tile_ops, name), operands, **options)
    expected = gradients(getattr(reference, name), operands, torch.float64, **options)
    for x, gradient, wanted in zip(operands, found, expected):
        assert gradient.dtype == x.dtype
        assert gradient.shape == x.shape
        close(gradient, wanted, tolerance or TOLERANCES[str(x.dtype).removeprefix("torch.")])


@pytest.mark.amd_in_full
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(way, close, shape):
    agree(close, "rms_norm", normal(*shape, dtype=torch.float16), normal(shape[-1], dtype=torch.float16, seed=1))


@pytest.mark.amd_in_full
@pytest.mark.parametrize("shape", [*SHAPES[::2], pytest.param(SHAPES[1], marks=pytest.mark.full)])
def test_rms_norm_with_silu(way, close, shape):
    operands = normal(*shape, dtype=torch.bfloat16), normal(shape[-1], dtype=torch.bfloat16, seed=1)
    agree(close, "rms_norm", *operands, activation="silu")


@pytest.mark.amd_in_full
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(way, close, shape):
    operands = (normal(*s, dtype=torch.float16, seed=i) for i, s in enumerate((shape, shape[-1:], shape[-1:])))
    agree(close, "layer_norm", *operands)


@pytest.mark.parametrize("shape", SHAPES[::2])
def test_softmax(way, close, shape):
    agree(close, "softmax", normal(*shape, dtype=torch.float16))


@pytest.mark.cpu("its own kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 48), (64, 33), (65, 300), (129, 600), (130, 641), (3, 4096), (3, 5000), (1, 4223), (257, 4100)]
)
def test_rows_of_softmax_by_each_way_over_them(close, shape, dtype):
    """One row, a block and more; pieces that are whole and not; a matrix too large to go backwards. What float16 keeps of the
    result is off by a rounding, which a sum of many such products shows."""
    agree(close, "softmax", normal(*shape, dtype=dtype), tolerance=1e-2 if dtype == torch.float16 else None)


@pytest.mark.cpu("plans")
def test_which_way_the_second_pass_over_rows_of_softmax_goes():
    def way(columns, dtype, arch="x86-64-v4", rows=7, first_cache=32 << 10):
        problem = NormBackwardProblem(NormProblem(rows, columns, dtype, None, "softmax"))
        ((_, spec),) = plan(problem, Target("cpu", arch, first_cache=first_cache)).kernels
        assert spec in shipped_there[arch]
        found = dict(spec.arguments)
        return found["second_pass"], found["block_columns"]

    levels = ("x86-64-v3", "x86-64-v4", "x86-64-v4+bf16+vnni+amx")
    shipped_there = {level: set(shipped(Target("cpu", level))) for level in levels}
    joined, forwards, backwards = ("joined", 16), ("forwards", 64), ("backwards", 128)
    assert [way(n, "float32") for n in (160, 819, 820, 4095, 4096)] == [joined, joined, forwards, forwards, backwards]
    larger = {n: way(n, "float32", first_cache=48 << 10) for n in (1228, 1229, 6143, 6144)}
    assert list(larger.values()) == [joined, forwards, forwards, forwards]
    assert [way(1024, "float32", rows=rows, first_cache=48 << 10) for rows in (512, 513)] == [joined, forwards]
    assert way(160, "float32", rows=10**6) == ("forwards", 16)
    assert [way(4096, "float32", rows=rows) for rows in (1, 256, 257)] == [backwards, backwards, forwards]
    assert [way(n, "bfloat16") for n in (160, 4096, 4097)] == [joined, joined, forwards]
    of_avx2 = {n: way(n, "float32", "x86-64-v3") for n in (20, 120, 127, 160, 161, 4096)}
    assert list(of_avx2.values()) == [
        ("joined", 8),
        ("forwards", 16),
        ("joined", 8),
        *[("forwards", n) for n in (16, 32, 32)],
    ]
    assert way(20, "float32", "x86-64-v3", rows=10**6) == ("forwards", 8)
    assert way(160, "float16", "x86-64-v3") == joined
    assert way(8192, "float32", "x86-64-v4+bf16+vnni+amx") == forwards


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 40), (7, 1000), (65, 72), (6, 2050)])
def test_rows_at_once_and_what_is_left_of_them(close, shape, dtype):
    """Parts of no, one and several fours, with rows besides; columns that fill no piece. The gradient of x is the same with
    and without those of the weights."""
    x, weight, bias = (normal(*size, seed=i, dtype=dtype) for i, size in enumerate((shape, shape[1:], shape[1:])))
    for activation in (None, "silu"):
        agree(close, "rms_norm", x, weight, activation=activation)
        given = x.detach(), weight.detach(), 1e-6, activation
        both = [rms_norm_backward(normal(*shape, seed=5, dtype=dtype), *given, sums)[0] for sums in (True, False)]
        assert torch.equal(*both)
    agree(close, "layer_norm", x, weight, bias)
    agree(close, "layer_norm", x)


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("rows", [513, 577])
def test_parts_without_rows_add_nothing(close, rows):
    """64 parts of 9 and 10 rows: the last ones begin past the end."""
    x, weight, bias = normal(rows, 1024), normal(1024, seed=1), normal(1024, seed=2)
    agree(close, "rms_norm", x, weight)
    agree(close, "layer_norm", x, weight, bias)


@pytest.mark.cpu("plans")
def test_where_rows_are_at_once():
    def together(rows, columns, arch="x86-64-v4", dtype="float32"):
        problem = NormBackwardProblem(NormProblem(rows, columns, dtype, None, "layer_norm"), True)
        return dict(dict(plan(problem, Target("cpu", arch)).kernels)["rows"].arguments).get("together", 1)

    assert [together(rows, 1024) for rows in (1, 1024, 1025)] == [4, 4, 1]
    assert [together(10**6, columns) for columns in (2048, 2049)] == [1, 4]
    assert [together(8, 4096, arch) for arch in ("x86-64-v3", "x86-64-v4+bf16+vnni+amx")] == [4, 4]
    assert [together(8, columns, "x86-64-v3") for columns in (512, 513, 2048, 2049)] == [4, 1, 1, 4]
    assert together(8, 513, "x86-64-v3", "bfloat16") == 4


@pytest.mark.parametrize("rows", [1, 200, 3000])
def test_sums_over_many_rows(close, rows):
    agree(close, "layer_norm", normal(rows, 96), normal(96, seed=1), normal(96, seed=2))


def test_softmax_along_another_dimension_and_a_view_as_gradient(close):
    agree(close, "softmax", normal(6, 7, 40), dim=1)
    x, weight = normal(4, 64).requires_grad_(), normal(64, seed=1)
    tile_ops.layer_norm(x, weight).sum().backward()  # its gradient is one number, expanded
    (expected,) = torch.autograd.grad(reference.layer_norm(x, weight).sum(), x)
    close(x.grad, expected, TOLERANCES["float32"])


def test_a_mean_far_from_zero_is_no_loss(close):
    agree(close, "layer_norm", 1000 + normal(4, 300), normal(300, seed=1), normal(300, seed=2), tolerance=2e-4)


@pytest.mark.parametrize("columns", [300, 8704])
def test_rows_of_equal_elements(close, columns):
    x = torch.tensor([12345.678, 0.1, -3e7])[:, None].expand(3, columns).contiguous()
    agree(close, "layer_norm", x, normal(columns, seed=1), normal(columns, seed=2))


@pytest.mark.cpu("the gradient is called by itself")
def test_frozen_weights_take_no_sums(close):
    x, weight = normal(40, 64).requires_grad_(), normal(64, seed=1)
    found, expected = (
        gradients(norm, (x, weight), dtype)
        for norm, dtype in ((tile_ops.rms_norm, None), (reference.rms_norm, torch.float64))
    )
    assert found[1] is None
    close(found[0], expected[0], TOLERANCES["float32"])
    none, sums = torch.ops.tile_ops.rms_norm_backward(x.detach(), x.detach(), weight, 1e-6, None, False)
    assert sums.numel() == 0
    bias = normal(64, seed=2).requires_grad_()
    tile_ops.layer_norm(x.detach(), None, bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((64,), 40.0))


@pytest.mark.cpu("the gradient is called by itself")
def test_gradients_are_the_same_in_every_run_and_a_row_depends_on_itself():
    x, weight = normal(300, 96).requires_grad_(), normal(96, seed=1).requires_grad_()
    first, second = (gradients(tile_ops.rms_norm, (x, weight)) for _ in range(2))
    assert all(map(torch.equal, first, second))
    dy = normal(300, 96, seed=9)
    backward = torch.ops.tile_ops.rms_norm_backward
    alone, _ = backward(dy[7:8], x.detach()[7:8], weight.detach(), 1e-6, None, True)
    among, _ = backward(dy, x.detach(), weight.detach(), 1e-6, None, True)
    assert torch.equal(alone[0], among[7])


@pytest.mark.cpu("the gradient is called by itself")
def test_our_kernels_make_them():
    x, weight, statistics = normal(4, 64), normal(64, seed=1), torch.ones(2, 4)
    made = torch.ops.tile_ops
    for operator, operands, options, run in (
        (
            RMS_NORM_BACKWARD,
            (x, x, weight),
            {"eps": 1e-6, "activation": None, "sums": True},
            lambda: made.rms_norm_backward(x, x, weight, 1e-6, None, True),
        ),
        (
            LAYER_NORM_BACKWARD,
            (x, x, None, statistics),
            {"sums": True},
            lambda: made.layer_norm_backward(x, x, None, statistics),
        ),
        (
            LAYER_NORM_BACKWARD,
            (x, x, None, statistics),
            {"sums": False},
            lambda: made.layer_norm_x_backward(x, x, None, statistics),
        ),
        (SOFTMAX_BACKWARD, (x, x), {"dim": -1}, lambda: made.softmax_backward(x, x, -1)),
    ):
        before = operator.explain(*operands, **options)
        run()
        after = operator.explain(*operands, **options)
        assert [k.launches + 1 for k in before.kernels] == [k.launches for k in after.kernels]
        assert "rows of 64 " in after.why


@pytest.mark.cpu("plans")
@pytest.mark.parametrize(
    "target",
    [Target("cpu", "x86-64-v3"), Target("cpu", "x86-64-v4"), Target("cuda", "sm_80"), Target("hip", "gfx942")],
    ids=str,
)
def test_what_is_shipped_serves_rows_of_any_length(target):
    known = set(shipped(target))
    for columns, dtype, kind in product(
        (1, 100, 1000, 2000, 8192, 50257), DTYPES, ("rms_norm", "layer_norm", "softmax")
    ):
        for sums in (False, True):
            chosen = plan(NormBackwardProblem(NormProblem(7, columns, dtype, None, kind), sums), target)
            assert {spec for _, spec in chosen.kernels} <= known


def test_empty():
    for shape in ((0, 8), (3, 0), (2, 0, 8)):
        x, weight = torch.empty(shape, requires_grad=True), torch.ones(shape[-1], requires_grad=True)
        bias = torch.ones(shape[-1], requires_grad=True)
        tile_ops.rms_norm(x, weight).sum().backward()
        assert x.grad.shape == shape
        assert torch.equal(weight.grad, torch.zeros(shape[-1]))
        weight.grad = None
        tile_ops.layer_norm(x, weight, bias).sum().backward()
        assert torch.equal(weight.grad, torch.zeros(shape[-1]))
        assert torch.equal(bias.grad, torch.zeros(shape[-1]))
        tile_ops.softmax(x).sum().backward()


@pytest.mark.parametrize(
    "function",
    [lambda x: tile_ops.rms_norm(x, torch.ones(64)), lambda x: tile_ops.layer_norm(x), lambda x: tile_ops.softmax(x)],
    ids=["rms_norm", "layer_norm", "softmax"],
)
def test_a_result_that_nothing_depends_on(function):
    """Autograd then gives no gradient, or zeros, for it. The operators are looked up by the test: `--device` moves them."""

    class Unused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dy):
            return None

    x = normal(4, 64).requires_grad_()
    (found,) = torch.autograd.grad(Unused.apply(function(x)).sum(), x, allow_unused=True)
    assert found is None or torch.equal(found, torch.zeros(4, 64))


def test_are_torch_operators(close):
    x, weight, bias = normal(4, 64).requires_grad_(), normal(64, seed=1).requires_grad_(), normal(64, seed=2)
    torch.library.opcheck(torch.ops.tile_ops.rms_norm.default, (x, weight, 1e-6, "silu"))
    torch.library.opcheck(torch.ops.tile_ops.layer_norm.default, (x, weight, bias.requires_grad_(), 1e-5))
    torch.library.opcheck(torch.ops.tile_ops.softmax.default, (x, 0))
    dy = normal(4, 64, seed=3)
    torch.library.opcheck(
        torch.ops.tile_ops.rms_norm_backward.default, (dy, x.detach(), weight.detach(), 1e-6, None, True)
    )
    statistics = torch.stack(
        [x.detach().mean(-1) - x[:, 0].detach(), (x.detach().var(-1, correction=0) + 1e-5).rsqrt()]
    )
    torch.library.opcheck(torch.ops.tile_ops.layer_norm_with_statistics.default, (x, weight, bias, 1e-5))
    torch.library.opcheck(torch.ops.tile_ops.layer_norm_backward.default, (dy, x.detach(), None, statistics))
    torch.library.opcheck(torch.ops.tile_ops.layer_norm_x_backward.default, (dy, x.detach(), None, statistics))
    torch.library.opcheck(torch.ops.tile_ops.softmax_backward.default, (dy, x.detach(), -1))

    def both(x, weight):
        return tile_ops.softmax(tile_ops.layer_norm(tile_ops.rms_norm(x, weight, activation="silu"), weight))

    def expected(x, weight):
        return reference.softmax(reference.layer_norm(reference.rms_norm(x, weight, activation="silu"), weight))

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    found, wanted = gradients(compiled, (x, weight)), gradients(expected, (x, weight), torch.float64)
    for gradient, reference_gradient in zip(found, wanted):
        close(gradient, reference_gradient, 1e-4)


@pytest.mark.cpu("the gradient is called by itself")
@pytest.mark.parametrize(
    ("dy", "error", "text"),
    [
        (torch.ones(2, 63), WrongShape, "the gradient has shape (2, 63), the result (2, 64)"),
        (torch.ones(2, 64).half(), WrongDtype, "the gradient is torch.float16, the result torch.float32"),
    ],
)
def test_refuses(dy, error, text):
    x = torch.ones(2, 64)
    for call in (
        lambda: torch.ops.tile_ops.rms_norm_backward(dy, x, x[0], 1e-6, None, True),
        lambda: torch.ops.tile_ops.layer_norm_backward(dy, x, None, torch.ones(2, 2)),
        lambda: torch.ops.tile_ops.layer_norm_x_backward(dy, x, None, torch.ones(2, 2)),
        lambda: torch.ops.tile_ops.softmax_backward(dy, x, -1),
    ):
        with pytest.raises(error, match=re.escape(text)):
            call()


@pytest.mark.parametrize("columns", [160, 1100])
def test_rows_of_a_layer_norm_have_the_same_bits_in_any_number(run_as, columns):
    """Numbers that fill 16 bytes, and tiles, and numbers that do not; the gradients of rows, too."""
    run_as("cuda -arch=sm_90a")
    x, dy = torch.randn(35, columns), torch.randn(35, columns)
    weight, bias = torch.randn(columns), torch.randn(columns)

    def rows(first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        some = x[first:end].clone().requires_grad_()
        y = tile_ops.layer_norm(some, weight, bias)
        (dx,) = torch.autograd.grad(y, some, dy[first:end].clone())
        return y.detach(), dx

    whole = rows(0, 35)
    for first, end in ((0, 32), (16, 32), (5, 9), (20, 35)):
        for found, expected in zip(rows(first, end), whole):
            assert torch.equal(found, expected[first:end])


@pytest.mark.cpu("the gradient is called by itself")
@pytest.mark.parametrize(
    ("statistics", "error", "text"),
    [
        (torch.ones(2, 3), WrongShape, "statistics have shape (2, 3); expected (2, 2)"),
        (torch.ones(2, 2).double(), WrongDtype, "statistics are torch.float64; expected those of"),
        (torch.ones(2, 2).T, WrongStride, "statistics are not contiguous; expected those of"),
    ],
)
def test_refuses_statistics(statistics, error, text):
    x = torch.ones(2, 64)
    with pytest.raises(error, match=re.escape(text)):
        torch.ops.tile_ops.layer_norm_backward(x, x, None, statistics)


@pytest.mark.cpu("the operator is called by torch.ops")
@pytest.mark.parametrize("columns", [300, 8704])
def test_layer_norm_that_kept_no_statistics(close, columns):
    """A graph that was exported without gradients, say."""
    x, weight, bias = (
        normal(*shape, seed=i).requires_grad_() for i, shape in enumerate(((5, columns), (columns,), (columns,)))
    )
    y = torch.ops.tile_ops.layer_norm(x, weight, bias, 1e-5)
    assert torch.equal(y, tile_ops.layer_norm(x, weight, bias))
    dy = normal(5, columns, seed=9)
    found = torch.autograd.grad(y, (x, weight, bias), dy)
    expected = torch.autograd.grad(tile_ops.layer_norm(x, weight, bias), (x, weight, bias), dy)
    assert all(map(torch.equal, found, expected))


@pytest.mark.cpu("the operator is called by torch.ops")
def test_statistics_are_those_of_rows(close):
    x = 100 + normal(7, 300, dtype=torch.float16)
    _, (mean, scale) = torch.ops.tile_ops.layer_norm_with_statistics(x, None, None, 1e-5)
    close(mean + x[:, 0].float(), x.double().mean(-1), 1e-6)
    close(scale, (x.double().var(-1, correction=0) + 1e-5).rsqrt(), 1e-6)


def test_few_rows_have_blocks_for_a_whole_chip():
    """A tile each on a GPU, as long as a chip has room for them, and four of many."""
    parts = {}
    for rows in (1, 40, 133, 4 * 264, 40000, 10**6):
        problem = NormBackwardProblem(NormProblem(rows, 236, "float16", None, "layer_norm"), sums=True)
        parts[rows] = dict(plan(problem, Target("cuda", "sm_90a")).numbers)["parts"]
    assert parts == {1: 1, 40: 10, 133: 34, 4 * 264: 264, 40000: 1056, 10**6: 1056}
