"""matmul agrees with its reference on every way to run it, and is a torch operator."""

from __future__ import annotations

import re

import pytest
import torch

import tile_compiler
import tile_ops
import tilelang
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.gemm import reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_in_place import kernels as in_place_kernels
from tile_ops.kernel import Target


def operands(a, b, dtype=torch.float32, seed=0):
    """Random tensors of two shapes."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in (a, b))


@pytest.mark.parametrize("shapes", [((64, 64), (64, 64)), ((70, 40), (40, 72))])
def test_agrees_with_the_reference(way, ran, close, shapes):
    a, b = operands(*shapes, torch.float16)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float16"])


def test_rows_that_begin_anywhere(ran, close):
    a, b = operands((3, 33), (33, 5), torch.float16)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float16"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_element_types(ran, close, dtype):
    a, b = operands((40, 64), (64, 48), dtype)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES[str(dtype)[6:]])


def test_integers_are_exact(way, ran):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-128, 128, (64, 64), generator=generator, dtype=torch.int8) for _ in range(2))
    found = ran(tile_ops.matmul, a, b)
    assert found.dtype == torch.int32
    assert torch.equal(found.long(), a.long() @ b.long())


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_bias_and_activation(ran, close, activation):
    a, b = operands((20, 32), (32, 24))
    bias = torch.linspace(-2, 2, 24)
    found = ran(tile_ops.matmul, a, b, bias=bias, activation=activation)
    close(found, reference.matmul(a, b, bias=bias, activation=activation), reference.TOLERANCES["float32"])


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("rows", [1, 20])
def test_what_is_no_number_stays_so(ran, rows, activation):
    """As torch's: NaN for NaN, also of relu, and in its own row or column alone."""
    a, b = operands((rows, 32), (32, 24))
    a[0, 3], b[5, 7] = float("nan"), float("inf")
    found = ran(tile_ops.matmul, a, b, activation=activation)
    expected = reference.matmul(a, b, activation=activation)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())


def test_a_result_that_shares_memory_with_an_operand(ran, close):
    a, b = operands((300, 300), (300, 300))
    expected = reference.matmul(a, b)
    for out, call in ((x := a.clone(), (x, b)), (y := b.clone(), (a, y))):
        tile_ops.matmul(*call, out=out)
        close(out, expected, reference.TOLERANCES["float32"])


def test_a_result_in_any_order_of_matrices(ran, close):
    for shape in ((3, 5, 4, 16), (3, 4, 16)):
        a, b = operands(shape, (16, 8))
        out = torch.empty(shape[1], shape[0], *shape[2:-1], 8).transpose(0, 1)
        tile_ops.matmul(a, b, out=out)
        close(out, reference.matmul(a, b), reference.TOLERANCES["float32"])
    a = operands((3, 5, 4, 16), ())[0]
    with pytest.raises(WrongStride, match="its rows must be contiguous and apart"):
        tile_ops.matmul(a[0], b, out=torch.empty(200).as_strided((5, 4, 8), (8, 8, 1)))


def test_bias_activation_and_batches_on_gpus(way, ran, close):
    """Both operands transposed in place, b shared by neighbours."""
    a, b = operands((2, 2, 64, 64), (2, 1, 64, 64), torch.bfloat16)
    bias = torch.linspace(-2, 2, 64).bfloat16()
    found = ran(tile_ops.matmul, a.mT, b.mT, bias=bias, activation="gelu")
    expected = reference.matmul(a.mT, b.mT, bias=bias, activation="gelu")
    close(found, expected, reference.TOLERANCES["bfloat16"])


def test_the_result_is_rounded_once(ran, close):
    a, b = operands((20, 32), (32, 24), torch.float16)
    found = ran(tile_ops.matmul, a, b, out_dtype=torch.float32)
    assert found.dtype == torch.float32
    close(found, reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.parametrize(("turn_a", "turn_b"), [(False, True), (True, False), (True, True)])
def test_transposed_operands_are_read_in_place(ran, close, turn_a, turn_b):
    a, b = operands((64, 40), (40, 72), torch.float16)
    a = a.mT.contiguous().mT if turn_a else a
    b = b.mT.contiguous().mT if turn_b else b
    spec = tile_ops.explain(tile_ops.matmul, a, b).kernels[0].spec
    assert (dict(spec.arguments)["transpose_a"], dict(spec.arguments)["transpose_b"]) == (turn_a, turn_b)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float16"])


@pytest.mark.parametrize(
    ("shapes", "batches"),
    [
        (((3, 20, 32), (3, 32, 24)), ("each", "each")),
        (((2, 3, 20, 32), (32, 24)), ("each", "each")),  # rows of a as one matrix
        (((20, 32), (3, 32, 24)), ("shared", "each")),
        (((2, 3, 20, 32), (2, 1, 32, 24)), ("each", "repeated")),
        (((2, 3, 20, 32), (3, 32, 24)), ("each", "cycled")),
        (((2, 1, 20, 32), (1, 3, 32, 24)), ("repeated", "cycled")),
        (((2, 3, 2, 20, 32), (2, 1, 2, 32, 24)), ("each", "each")),  # b is copied
    ],
)
def test_leading_dimensions_broadcast(ran, close, shapes, batches):
    a, b = operands(*shapes)
    arguments = dict(tile_ops.explain(tile_ops.matmul, a, b).kernels[0].spec.arguments)
    assert (arguments["batch_a"], arguments["batch_b"]) == batches
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :32],
        lambda x: x[::2, :32],
        lambda x: x[:, 3:35],
        lambda x: x[:, ::2],
        lambda x: x[:1].expand(40, 64)[:, :32],
        lambda x: x[:, :1].expand(40, 32),
    ],
    ids=["pitch", "rows", "offset", "columns", "one row", "one column"],
)
def test_strided_operands(ran, close, view):
    x, b = operands((40, 64), (32, 24))
    a = view(x)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])
    c = operands((17, a.shape[0]), (1, 1))[0]
    close(ran(tile_ops.matmul, c, a), reference.matmul(c, a), reference.TOLERANCES["float32"])


@pytest.mark.cpu("its caches")
@pytest.mark.parametrize(("rows", "columns", "m"), [(16, 768, 64), (16, 64, 16), (40, 768, 40)])
def test_strided_matrices_of_few_rows_meet_a_large_one_as_the_rows_of_one(ran, close, rows, columns, m):
    x, b = operands((rows, 4, 768), (768, columns))
    a = x.transpose(0, 1)
    assert GemmProblem.of(a, b).m == m
    expected = reference.matmul(a, b, activation="relu")
    for out in (None, torch.empty(4, rows, columns), torch.empty(rows, 4, columns).transpose(0, 1)):
        close(ran(tile_ops.matmul, a, b, activation="relu", out=out), expected, reference.TOLERANCES["float32"])


def test_out_keeps_what_lies_beside_it(ran, close):
    a, b = operands((20, 32), (32, 24))
    frame = torch.full((22, 40), 7.0)
    out = frame[1:21, 8:32]
    assert ran(tile_ops.matmul, a, b, out=out) is out
    close(out, reference.matmul(a, b), reference.TOLERANCES["float32"])
    out.fill_(7)
    assert (frame == 7).all()


def test_vectors_of_one_row_or_column(ran, close):
    for shapes in (((1, 32), (32, 24)), ((20, 32), (32, 1)), ((20, 1), (1, 24))):
        a, b = operands(*shapes)
        close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float32"])


def test_empty():
    assert tile_ops.matmul(torch.empty(0, 8), torch.empty(8, 4)).shape == (0, 4)
    assert tile_ops.matmul(torch.empty(0, 3, 8), torch.empty(8, 4)).shape == (0, 3, 4)
    bias = torch.tensor([-1.0, 0.0, 2.0])
    found = tile_ops.matmul(torch.empty(2, 0), torch.empty(0, 3), bias=bias, activation="relu")
    assert torch.equal(found, torch.tensor([[0.0, 0.0, 2.0]] * 2))


def test_is_a_torch_operator():
    a, b = operands((20, 32), (32, 24))
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.tile_ops.matmul.default, (a, b, None, "relu", None), test_utils=checks)
    out = torch.empty(20, 24)
    torch.library.opcheck(
        torch.ops.tile_ops.matmul_out.default, (a, b, out, None, None, None, None, None), test_utils=checks
    )


def test_compiles_as_one_graph(close):
    a, b = operands((20, 32), (32, 24))
    compiled = torch.compile(lambda a: 2 * tile_ops.matmul(a, b), fullgraph=True, backend="aot_eager")
    close(compiled(a), 2 * reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(close, device, dtype):
    """To the type that autocast has there, the gradients' products too."""
    a, b = operands((20, 32), (32, 24))
    a.requires_grad_()
    with torch.autocast(device, dtype):
        found = tile_ops.matmul(a, b)
    assert found.dtype == dtype
    tolerance = reference.TOLERANCES[str(dtype).removeprefix("torch.")]
    close(found.detach(), reference.matmul(a.detach().to(dtype), b.to(dtype)), tolerance)
    found.sum().backward()
    close(a.grad, b.to(dtype).double().sum(1).expand(20, 32), tolerance)


def test_under_autocast_a_bias_is_of_the_type_of_the_result(close, ran, device):
    a, b = operands((20, 32), (32, 24))
    bias = torch.linspace(0, 1, 24).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        found = ran(tile_ops.matmul, a, b, bias=bias, out_dtype=torch.float32)
    assert found.dtype == torch.float32
    close(found.detach(), reference.matmul(a.bfloat16(), b.bfloat16(), bias=bias.detach()), 1e-5)
    found.sum().backward()
    close(bias.grad, torch.full((24,), 20.0), 1e-5)


@pytest.mark.parametrize(
    "target",
    [
        "cuda -arch=sm_90a",
        pytest.param("cuda -arch=sm_80", marks=pytest.mark.full),
        pytest.param("hip -mcpu=gfx942", marks=pytest.mark.full),
    ],
)
def test_few_rows_are_split_along_k(run_as, ran, close, target):
    run_as(target)
    a, b = operands((3, 3080), (3080, 136), torch.float16)
    bias = torch.linspace(-2, 2, 136).half()
    explained = tile_ops.explain(tile_ops.matmul, a, b, bias=bias, activation="silu")
    assert [kernel.role for kernel in explained.kernels] == ["parts", "finish"]
    found = ran(tile_ops.matmul, a, b, bias=bias, activation="silu")
    close(found, reference.matmul(a, b, bias=bias, activation="silu"), reference.TOLERANCES["float16"])
    assert torch.equal(found, tile_ops.matmul(a, b, bias=bias, activation="silu"))


def test_ampere(run_as, ran, close):
    run_as("cuda -arch=sm_80")
    a, b = operands((72, 40), (40, 72), torch.float16)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES["float16"])


A, B = torch.ones(4, 6), torch.ones(6, 8)


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "text"),
    [
        (A, A, {}, WrongShape, "a has 6 columns and b 4 rows"),
        (torch.ones(6), B, {}, WrongShape, "a has shape (6,)"),
        (torch.ones(2, 4, 6), torch.ones(3, 6, 8), {}, WrongShape, "do not broadcast"),
        (A, B.half(), {}, WrongDtype, "a is torch.float32, b torch.float16"),
        (A, B.half(), {}, WrongDtype, ": b.to(a.dtype)"),
        (A.double(), B.double(), {}, WrongDtype, "float8_e4m3fnuz: a.float()"),
        (A, B, {"activation": "tanh"}, WrongValue, "activation is 'tanh'"),
        (A, B, {"bias": torch.ones(4)}, WrongShape, "bias has shape (4,) for 8 columns"),
        (A, B, {"bias": torch.ones(8).half()}, WrongDtype, "bias is torch.float16"),
        (A, B, {"out_dtype": torch.int32}, WrongDtype, "a result of float32 is torch.int32"),
        (A.char(), B.char(), {"activation": "relu"}, WrongDtype, "bias and activation need"),
        (A, B, {"out": torch.empty(4, 6)}, WrongShape, "out has shape (4, 6); expected (4, 8)"),
        (A, B, {"out": torch.empty(8, 4).T}, WrongStride, "out has strides (1, 4)"),
    ],
)
def test_refuses(a, b, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.matmul(a, b, **options)


V3, V4, AMX = (Target("cpu", f"x86-64-{level}") for level in ("v3", "v4", "v4+bf16+vnni+amx"))


@pytest.mark.parametrize(
    ("target", "m", "n", "k", "turned", "tile", "dtype"),
    [
        (V4, 9, 60000, 70, False, (16, 512, 128), "float32"),
        (V4, 20, 20000, 70, False, (32, 512, 128), "float32"),
        (V4, 16, 600, 2000, True, (16, 64, 512), "float32"),
        (V4, 100, 16000, 70, True, (128, 128, 128), "float16"),
        (V4, 100, 6000, 220, True, (128, 128, 256), "float16"),
        (V3, 8, 200, 300, True, (8, 64, 256), "float32"),
        (V3, 8, 60, 70, True, (8, 64, 128), "float32"),
        (V3, 8, 60, 64, True, (8, 64, 64), "float32"),
        (V4, 5000, 5000, 70, False, (256, 256, 128), "float16"),
        (V3, 9, 60000, 70, False, (16, 128, 64), "float32"),
        (V3, 33, 60, 70000, False, (64, 64, 64), "float32"),
        (V3, 100, 4100, 64, True, (128, 128, 128), "float16"),
        (V3, 115, 9000, 31, True, (128, 128, 64), "float32"),
        (AMX, 20, 20000, 70, False, (32, 512, 128), "float32"),
        (AMX, 36, 20000, 70, False, (64, 512, 128), "float16"),
    ],
)
def test_tiles_of_a_cpu(target, m, n, k, turned, tile, dtype):
    """As few tiles as there can be; where what is past C is computed too, little of that."""
    batch = 2 if turned and 8 < m <= 64 else 1  # of one matrix few rows go another way
    problem = GemmProblem(batch, m, n, k, dtype, dtype, False, turned, "each", "each", None, None, False)
    ((_, spec),) = plan(problem, target).kernels
    assert tuple(dict(spec.arguments)[name] for name in ("block_m", "block_n", "block_k")) == tile
    assert spec in set(shipped(target))


@pytest.mark.cpu("tiles for its vectors and caches")
@pytest.mark.parametrize(
    ("m", "n", "k", "turned", "tile"),
    [(6, 20, 300, True, (16, 128)), (8, 20, 70, True, (16, 64)), (4, 20, 300, True, (8, 64)),
     (8, 600, 300, False, (64, 512)), (3, 2000, 60, False, (64, 512)), (8, 1000, 600, False, (256, 128)),
     (2, 600, 300, False, (1024, 8))],
)  # fmt: skip
def test_few_rows_with_avx512(m, n, k, turned, tile):
    problem = GemmProblem(1, m, n, k, "float32", "float32", False, turned, "each", "each", None, None, False)
    ((_, spec),) = plan(problem, V4).kernels
    assert tuple(dict(spec.arguments)[name] for name in ("block_n", "block_k")) == tile
    assert spec in set(shipped(V4))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize(
    ("arch", "dtype", "m", "n", "k", "tile"),
    [
        ("x86-64-v3", "float32", 1, 4096, 4096, None),
        ("x86-64-v3", "float32", 2, 4096, 4096, (2, 256, 512)),
        ("x86-64-v3", "bfloat16", 1, 1000, 100, (2, 64, 128)),
        ("x86-64-v3", "float16", 32, 4096, 4096, (8, 256, 512)),
        ("x86-64-v3", "bfloat16", 33, 4096, 4096, None),
        ("x86-64-v3", "float32", 64, 4096, 4096, (32, 256, 256)),
        ("x86-64-v4", "bfloat16", 9, 2047, 600, (16, 64, 512)),
        ("x86-64-v4+bf16+vnni", "bfloat16", 16, 2048, 600, (16, 256, 1024)),
        ("x86-64-v4+bf16+vnni", "bfloat16", 64, 600, 200, (64, 64, 256)),
        ("x86-64-v4+bf16+vnni+amx", "float32", 4, 4096, 4096, None),
        ("x86-64-v4+bf16+vnni+amx", "float32", 5, 4096, 4096, (8, 256, 512)),
        ("x86-64-v4+bf16+vnni+amx", "bfloat16", 2, 4096, 4096, None),
        ("x86-64-v4+bf16+vnni+amx", "bfloat16", 8, 4096, 4096, (8, 256, 1024)),
        ("x86-64-v4+bf16+vnni+amx", "bfloat16", 9, 4096, 4096, None),
        ("x86-64-v4", "float32", 33, 1024, 1024, None),
        ("x86-64-v4", "float32", 33, 1024, 1025, (64, 64, 256)),
        ("x86-64-v4", "float32", 64, 20000, 100, (64, 256, 128)),
        ("x86-64-v4", "float32", 65, 4096, 4096, None),
        ("x86-64-v4", "float32", 8, 256, 255, None),
    ],
)
def test_few_rows_by_a_transposed_matrix_are_multiplied_where_it_lies(arch, dtype, m, n, k, tile):
    target = Target("cpu", arch)
    problem = GemmProblem(1, m, n, k, dtype, dtype, False, True, "each", "each", None, None, False)
    spec = plan(problem, target).kernels[0][1]
    assert (spec.function == "multiply_few") == (tile is not None)
    if tile is not None:
        arguments = dict(spec.arguments)
        assert tuple(arguments[name] for name in ("block_m", "block_n", "block_k")) == tile
        own = dtype == "bfloat16" and "bf16" in arch
        assert arguments["tile_dtype"] == (dtype if own else "float32")
        assert spec in set(shipped(target))


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize(
    ("arch", "m", "n", "k", "turned"),
    [
        ("x86-64-v4", 3, 64, 64, True),
        ("x86-64-v4", 2, 64, 64, False),
        ("x86-64-v4", 8, 31, 64, False),
        ("x86-64-v4", 2, 1024, 63, True),
        ("x86-64-v4", 1, 1024, 63, False),
        ("x86-64-v4", 1, 300, 15, True),
        ("x86-64-v3", 6, 64, 64, True),
        ("x86-64-v3", 8, 64, 64, False),
        ("x86-64-v3", 8, 31, 64, True),
        ("x86-64-v3", 4, 64, 63, True),
    ],
)
def test_few_rows_by_a_small_transposed_matrix(arch, m, n, k, turned):
    target = Target("cpu", arch)
    for batch, transpose_a in ((1, False), (2, False), (1, True)):
        problem = GemmProblem(
            batch, m, n, k, "float32", "float32", transpose_a, True, "each", "each", None, None, False
        )
        spec = plan(problem, target).kernels[0][1]
        assert (spec.function == "multiply") == (batch == 2 or (turned and not transpose_a))
        assert spec in set(shipped(target)) or transpose_a


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4+bf16+vnni", "x86-64-v4+bf16+vnni+amx"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_few_rows_copy_nothing_of_a_transposed_matrix(dtype, arch):
    problem = GemmProblem(1, 8, 4096, 4096, dtype, dtype, False, True, "each", "each", None, None, False)
    spec = plan(problem, Target("cpu", arch)).kernels[0][1]
    func = in_place_kernels.multiply_few(**dict(spec.arguments))
    text = tile_compiler.lower(func, tilelang.target.Target("cpu", arch)).trace.text()
    assert "tl.streams." in text
    assert "B_tile" not in text


@pytest.mark.cpu("kernels of CPUs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_few_rows_by_a_transposed_matrix(ran, close, dtype):
    """Rows that fill no tile, columns that fill no block, k within a step and beyond; rows of b apart; other types beside."""
    name = str(dtype).removeprefix("torch.")
    for m, n, k in ((2, 600, 130), (7, 513, 1000), (16, 2050, 70), (33, 300, 777), (1, 90, 2600)):
        a, b = operands((m, k), (k, n), dtype)
        b = torch.nn.functional.pad(b.T, (0, 3), value=torch.nan)[:, :k].T
        bias = torch.linspace(-2, 2, n)
        found = ran(tile_ops.matmul, a, b, bias=bias.to(dtype), activation="gelu")
        expected = reference.matmul(a, b, bias=bias.to(dtype), activation="gelu")
        close(found, expected, reference.TOLERANCES[name])
        for _ in range(3):  # the third call's kernel is prepared
            found = ran(tile_ops.matmul, a, b, bias=bias, out_dtype=torch.float32)
        close(found, reference.matmul(a, b, bias=bias), reference.TOLERANCES["float32"])
        out = torch.full((m, n + 1), torch.nan, dtype=dtype)
        tile_ops.matmul(a, b, out=out[:, :n])
        close(out[:, :n], reference.matmul(a, b), reference.TOLERANCES[name])
        assert out[:, n].isnan().all()


@pytest.mark.cpu("tiles that are not copied")
@pytest.mark.parametrize("columns", [1, *(pytest.param(n, marks=pytest.mark.full) for n in (64, 200)), 150])
@pytest.mark.parametrize("m", [3, 30, 140, *(pytest.param(m, marks=pytest.mark.full) for m in (8, 70))])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_small_matrices_are_read_where_they_lie(ran, close, m, columns, turned):
    """Rows apart by more than they have; one matrix, several, and shared ones; bias and activation."""

    def wide(*shape, turn):
        shape = (*shape[:-2], shape[-1], shape[-2]) if turn else shape
        x = torch.full((*shape[:-1], shape[-1] + 5), torch.nan)[..., : shape[-1]]
        x.normal_()
        return x.mT if turn else x

    for k in (1, 128, 300):
        for of_a, of_b in (((), ()), ((2,), (2,)), ((3, 2), (2,)), ((2,), ())):
            a, b = wide(*of_a, m, k, turn=turned[0]), wide(*of_b, k, columns, turn=turned[1])
            plan = tile_ops.explain(tile_ops.matmul, a, b)
            if m > 8 or (columns > 1 and not turned[1]):  # few rows by a transposed matrix are scalar products
                copied = turned[0] and m > 32 and columns >= 64 and k >= 32  # lines of a cache apart for each step
                assert [kernel.role for kernel in plan.kernels] == ["panels" if copied else "direct"], (k, of_a, of_b)
            close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), 1e-4)
        bias, out = torch.randn(columns), wide(m, columns, turn=False)
        activation = "gelu" if columns > 1 else None  # of three numbers all may be next to 0
        expected = reference.matmul(a[0], b, bias=bias, activation=activation)
        for _ in range(3):  # the third call's kernel is prepared
            ran(tile_ops.matmul, a[0], b, bias=bias, activation=activation, out=out)
            close(out, expected, 1e-4)


@pytest.mark.cpu("tiles that are not copied")
@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
def test_of_no_products_nothing_is_read(ran, turn_a, turn_b):
    a, b = torch.full((20, 20), torch.nan)[:, :0], torch.full((20, 30), torch.nan)[:0]
    a = torch.full((20, 20), torch.nan)[:0].T if turn_a else a
    b = torch.full((30, 20), torch.nan)[:, :0].T if turn_b else b
    assert (ran(tile_ops.matmul, a, b, bias=torch.ones(30)) == 1).all()


@pytest.mark.cpu("tiles for its vectors and caches")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("m", [6, 9, 20, 50, 120])
def test_a_cpu_computes_what_its_tiles_leave_over(ran, close, m, turned):
    for k, dtype in ((70, torch.float32), (33, torch.bfloat16)):
        a, b = operands((m, k), (k, 150), dtype)
        b = b.T.contiguous().T if turned else b
        name = str(dtype).removeprefix("torch.")
        close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), reference.TOLERANCES[name])


FEW = [
    ("cpu", "rows"),
    ("cpu", "columns"),
    ("cuda -arch=sm_90a", "rows"),
    pytest.param("cuda -arch=sm_80", "rows", marks=pytest.mark.full),
]


@pytest.mark.parametrize(("target", "stored"), FEW)
def test_few_rows(run_as, ran, close, target, stored):
    run_as(target)
    for m in (1, 6) if target == "cpu" else (3,):
        k = 1083 if target == "cpu" else 1080
        for n in (60, 2100) if stored == "columns" else (60,):
            a, b = operands((m, k), (k, n), torch.float16)
            b = b.T.contiguous().T if stored == "rows" else b
            bias = torch.linspace(-2, 2, n).half()
            roles = [kernel.role for kernel in tile_ops.explain(tile_ops.matmul, a, b, bias=bias).kernels]
            assert roles == (["gemv"] if n == 60 else ["parts", "combine"])
            for _ in range(3):  # the third call's kernels are prepared
                found = ran(tile_ops.matmul, a, b, bias=bias, activation="relu")
                close(found, reference.matmul(a, b, bias=bias, activation="relu"), reference.TOLERANCES["float16"])
