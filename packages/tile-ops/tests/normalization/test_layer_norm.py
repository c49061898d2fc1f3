"""LayerNorm and softmax agree with their references on every way to run them, and are torch operators."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.kernel import Target
from tile_ops.normalization import configs, reference
from tile_ops.normalization.configs import plan
from tile_ops.normalization.problem import NormProblem


def normal(*shape, dtype=torch.float32, seed=0):
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.amd_in_full
@pytest.mark.parametrize("columns", [160, 8704])
def test_layer_norm(way, ran, close, columns):
    x, weight, bias = (
        normal(*s, dtype=torch.float16, seed=i) for i, s in enumerate(((5, columns), (columns,), (columns,)))
    )
    found = ran(tile_ops.layer_norm, x, weight, bias)
    close(found, reference.layer_norm(x, weight, bias), reference.TOLERANCES["float16"])


@pytest.mark.parametrize("columns", [160, 8704])
def test_softmax(way, ran, close, columns):
    x = normal(5, columns, dtype=torch.float16)
    close(ran(tile_ops.softmax, x), reference.softmax(x), reference.TOLERANCES["float16"])


@pytest.mark.parametrize("columns", [300, 8704])
def test_a_mean_far_from_zero_is_no_loss(ran, close, columns):
    x = 1000 + normal(4, columns)
    close(ran(tile_ops.layer_norm, x), reference.layer_norm(x), 2e-6)


@pytest.mark.parametrize("columns", [300, 8704])
def test_equal_elements_become_zero(ran, columns):
    assert not ran(tile_ops.layer_norm, torch.tensor([12345.678, 0.1, -3e7])[:, None].expand(3, columns)).any()


@pytest.mark.parametrize("given", [(False, False), (True, False), (False, True)])
def test_weight_and_bias_may_be_left_out(ran, close, given):
    x = normal(2, 3, 96, dtype=torch.bfloat16).transpose(0, 1)
    weight, bias = (normal(96, dtype=torch.bfloat16, seed=i) if there else None for i, there in enumerate(given))
    found = ran(tile_ops.layer_norm, x, weight, bias, eps=1e-3)
    close(found, reference.layer_norm(x, weight, bias, eps=1e-3), reference.TOLERANCES["bfloat16"])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_along_any_dimension(ran, close, dim):
    x = normal(6, 7, 40)
    found = ran(tile_ops.softmax, x, dim=dim)
    assert found.is_contiguous()
    close(found, reference.softmax(x, dim=dim), reference.TOLERANCES["float32"])


def test_softmax_of_infinities(ran):
    x = normal(3, 40)
    x[0, 5:] = -torch.inf
    x[1] = -torch.inf
    x[2] = 1e38
    found = ran(tile_ops.softmax, x)
    assert (found[0, 5:] == 0).all()
    assert found[1].isnan().all()
    assert torch.allclose(found[2], torch.tensor(1 / 40))


@pytest.mark.parametrize("dim", [0, -1])
def test_softmax_of_a_number(ran, dim):
    x = torch.tensor(3.0, requires_grad=True)
    found = ran(tile_ops.softmax, x, dim=dim)
    assert torch.equal(found, torch.tensor(1.0))
    found.backward()
    assert torch.equal(x.grad, torch.tensor(0.0))
    for _ in range(4):
        assert tile_ops.softmax(x.detach(), dim=dim) == 1
    assert tile_ops.softmax(torch.tensor(torch.nan), dim=dim).isnan()


def test_empty():
    assert tile_ops.layer_norm(torch.empty(0, 8)).shape == (0, 8)
    assert tile_ops.layer_norm(torch.empty(3, 0)).shape == (3, 0)
    assert tile_ops.softmax(torch.empty(3, 0)).shape == (3, 0)
    assert tile_ops.softmax(torch.empty(0, 3), dim=0).shape == (0, 3)


def test_are_torch_operators(close, device):
    x, weight = normal(4, 64), normal(64, seed=1)
    torch.library.opcheck(torch.ops.tile_ops.layer_norm.default, (x, weight, None, 1e-5))
    torch.library.opcheck(torch.ops.tile_ops.softmax.default, (x, 0))

    def both(x):
        return tile_ops.softmax(tile_ops.layer_norm(x, weight))

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    close(compiled(x), reference.softmax(reference.layer_norm(x, weight)), 1e-5)
    with torch.autocast(device, torch.bfloat16):
        assert both(x).dtype == torch.bfloat16


X = torch.ones(2, 64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tile_ops.layer_norm(X, torch.ones(63)), WrongShape, "weight has shape (63,), x has 64 channels"),
        (lambda: tile_ops.layer_norm(X, None, torch.ones(63)), WrongShape, "bias has shape (63,)"),
        (lambda: tile_ops.layer_norm(X, torch.ones(64).half()), WrongDtype, "x is torch.float32, weight torch.float16"),
        (lambda: tile_ops.layer_norm(X.int(), X[0]), WrongDtype, "x is torch.int32; expected one of"),
        (lambda: tile_ops.layer_norm(X, eps=-1.0), WrongValue, "eps is -1.0"),
        (lambda: tile_ops.layer_norm(X[0, 0]), WrongShape, "x has no dimension"),
        (lambda: tile_ops.softmax(X, dim=2), WrongShape, "dim is 2 of 2 dimensions"),
        (lambda: tile_ops.softmax(X[0, 0], dim=1), WrongShape, "dim is 1 of 0 dimensions; expected -1 to 0"),
        (lambda: tile_ops.softmax(X.int()), WrongDtype, "x is torch.int32"),
    ],
)
def test_refuses(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()


@pytest.mark.cpu("its kernels")
def test_narrow_rows_take_a_narrow_kernel_on_a_cpu(ran, close):
    for columns, expected in ((33, 64), (100, 128), (129, 160), (500, 512)):
        x = normal(3, columns)
        (kernel,) = tile_ops.explain(tile_ops.softmax, x).kernels
        assert dict(kernel.spec.arguments)["block_columns"] == expected
        close(ran(tile_ops.softmax, x), reference.softmax(x), reference.TOLERANCES["float32"])
        close(ran(tile_ops.layer_norm, x), reference.layer_norm(x), reference.TOLERANCES["float32"])


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize(
    ("operator", "columns", "kernel"),
    [
        ("layer_norm", 64, "layer_norm"),
        ("layer_norm", 321, "layer_norm_cached"),
        ("layer_norm", 5000, "layer_norm_cached"),
        ("softmax", 512, "softmax"),
        ("softmax", 8200, "softmax_cached"),
        ("softmax", (1 << 18) + 1, "softmax_long"),
    ],
)
def test_long_rows_are_read_from_a_cache_on_a_cpu(ran, close, operator, columns, kernel):
    function = getattr(tile_ops, operator)
    x = normal(18, columns)[:, torch.randperm(columns, generator=torch.Generator().manual_seed(1))]
    assert tile_ops.explain(function, x).kernels[0].spec.function == kernel
    close(ran(function, x), getattr(reference, operator)(x), reference.TOLERANCES["float32"])


@pytest.mark.cpu("plans of CPUs")
def test_which_rows_are_read_from_a_cache_depends_on_the_cpu_and_the_type():
    def function(arch, dtype, columns, operator="layer_norm"):
        return plan(NormProblem(1, columns, dtype, None, operator), Target("cpu", arch)).kernels[0][1].function

    for arch, dtype, columns in (
        ("x86-64-v3", "float32", 8192),
        ("x86-64-v4", "float32", 512),
        ("x86-64-v4", "float16", 8192),
    ):
        assert function(arch, dtype, columns, "softmax") == "softmax"
        assert function(arch, dtype, columns + 1, "softmax") == "softmax_cached"

    assert function("x86-64-v3", "float32", 64) == "layer_norm"
    assert function("x86-64-v3", "float32", 72) == "layer_norm_cached"
    uneven = [function("x86-64-v3", "float32", columns) for columns in (65, 127, 129)]
    assert uneven == ["layer_norm", "layer_norm", "layer_norm_cached"]

    def ahead(arch, dtype, columns):
        spec = plan(NormProblem(1, columns, dtype, None, "layer_norm"), Target("cpu", arch)).kernels[0][1]
        return dict(spec.arguments).get("ahead", 0)

    assert [ahead("x86-64-v4", "float32", columns) for columns in (640, 641)] == [0, 1024]
    assert not ahead("x86-64-v4", "float16", 641)
    assert not ahead("x86-64-v4+bf16+vnni+amx", "float32", 641)
    for arch, dtype in (("x86-64-v3", "bfloat16"), ("x86-64-v4", "float32")):
        assert function(arch, dtype, 320) == "layer_norm"
        assert function(arch, dtype, 321) == "layer_norm_cached"


@pytest.mark.cpu("kernels of CPUs")
def test_long_rows_of_infinities(ran):
    x = normal(3, 9000)
    x[0, 5:] = -torch.inf
    x[1] = -torch.inf
    x[2, 7] = torch.nan
    found = ran(tile_ops.softmax, x)
    assert torch.equal(found[0, 5:], torch.zeros(8995))
    assert found[0].sum() == pytest.approx(1)
    assert found[1:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", [20, 100, 300, *(pytest.param(n, marks=pytest.mark.full) for n in (32, 160))])
def test_a_row_alone_has_the_bits_that_it_has_among_others(columns, dtype):
    """Few rows have kernels of their own."""
    x = normal(70, columns, dtype=dtype)
    weight, bias = normal(columns, dtype=dtype, seed=1), normal(columns, dtype=dtype, seed=2)
    for operator, *more in (
        (tile_ops.softmax,),
        (tile_ops.layer_norm, weight, bias),
        (lambda x: tile_ops.rms_norm(x, weight, activation="silu"),),
        (tile_ops.rms_norm, weight),
    ):
        whole = operator(x, *more)
        for first, end in ((0, 1), (7, 10), (20, 36)):
            assert torch.equal(operator(x[first:end].contiguous(), *more), whole[first:end])


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "hip -mcpu=gfx942"])
@pytest.mark.parametrize("columns", [2, 3, 20, 64, 105, 300, 500])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_row_is_the_same_in_small_and_large_blocks_of_a_gpu(run_as, monkeypatch, columns, dtype, target):
    """Few rows have blocks of fewer elements, of the same threads for a row; LayerNorms of narrow ones, and wide rows that begin
    anywhere, always do."""
    run_as(target)
    x = normal(150, columns, dtype=dtype)
    blocks = {}
    for few, rows in ((True, 149), (False, 150)):
        monkeypatch.setattr(configs, "BLOCKS", 1 << 30 if few else 0)
        found = [tile_ops.softmax(x[:rows]), tile_ops.layer_norm(x[:rows])]
        specs = [tile_ops.explain(f, x[:rows]).kernels[0].spec for f in (tile_ops.softmax, tile_ops.layer_norm)]
        blocks[few] = [dict(spec.arguments)["block_rows"] for spec in specs]
        if few:
            alone = found
    uneven = dtype == torch.float16 and columns >= 300
    assert (blocks[True][0] == blocks[False][0]) == (uneven or (dtype == torch.float32 and columns == 105))
    assert (blocks[True][1] == blocks[False][1]) == (uneven or columns < 64)
    assert all(torch.equal(one, among[:149]) for one, among in zip(alone, found))


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (8193, torch.float32),
        (8200, torch.bfloat16),
        *(pytest.param(n, torch.float16, marks=pytest.mark.full) for n in (24577, 24600)),
    ],
    ids=str,
)
def test_a_gpu_streams_rows_that_no_registers_hold(hopper, ran, close, columns, dtype):
    """What is there of a softmax's row is told from what is not by nothing that a row may hold: the least number of a type, as
    masks have it, and infinities of the last elements, too."""
    x = normal(6, columns, dtype=dtype)
    x[1, 5:] = torch.finfo(dtype).min
    x[2, -9:] = -torch.inf
    x[3] = torch.finfo(dtype).min
    x[4, columns // 2] = torch.nan
    x[5] = -torch.inf
    (kernel,) = tile_ops.explain(tile_ops.softmax, x).kernels
    assert (kernel.spec.function, dict(kernel.spec.arguments)["threads"]) == (
        "softmax_streamed",
        1024 if columns > 24576 else 512,
    )
    found, tolerance = ran(tile_ops.softmax, x), reference.TOLERANCES[str(dtype).removeprefix("torch.")]
    close(found[:4], reference.softmax(x[:4]), tolerance)
    assert found[4:].isnan().all()
    weight, bias = normal(columns, dtype=dtype, seed=1), normal(columns, dtype=dtype, seed=2)
    rows, some = 1000 + x[:1], x[:1]
    close(ran(tile_ops.layer_norm, rows, weight, bias), reference.layer_norm(rows, weight, bias), tolerance)
    close(ran(tile_ops.rms_norm, some, weight), reference.rms_norm(some, weight), tolerance)


def test_rows_of_a_gpu_have_as_many_columns_as_they_need():
    """And a warp up to 1024 of them."""
    for kind, least in (("softmax", 2), ("layer_norm", 8)):
        tiles = {}
        for columns in (1, 2, 3, 8, 9, 33, 100, 1024, 1025):
            ((_, spec),) = plan(NormProblem(10**6, columns, "float16", None, kind), Target("cuda", "sm_90a")).kernels
            arguments = dict(spec.arguments)
            tiles[columns] = (arguments["block_columns"], arguments.get("threads", 128))
        assert tiles[1] == (least, 32)
        assert tiles[9] == (16, 32)
        assert tiles[33] == (64, 32)
        assert tiles[100] == (128, 32)
        assert tiles[1024] == (1024, 32)
        assert tiles[1025] == (2048, 128)
