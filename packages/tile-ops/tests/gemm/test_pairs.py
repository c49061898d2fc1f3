"""Products of float16 that are made of pairs of bfloat16, where a CPU has tile registers for these."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.gemm import api, reference
from tile_ops.gemm.configs import plan, shipped
from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm_pairs import configs
from tile_ops.grouped_gemm import configs as grouped
from tile_ops.grouped_gemm import reference as reference_of_groups
from tile_ops.grouped_gemm.api import GROUPED_MATMUL
from tile_ops.kernel import Target

AMX = Target("cpu", "x86-64-v4+bf16+vnni+amx")
TOLERANCE = reference.TOLERANCES["float16"]
of_level = configs.tile


@pytest.fixture
def everywhere(monkeypatch):
    """Their kernels are right on any level: those of this one's instructions are for any number of multiplications."""
    monkeypatch.setattr(configs, "LEAST_WORK", 0)
    monkeypatch.setattr(configs, "LEAST_RESULT", 0)
    monkeypatch.setattr(configs, "LEAST_ROWS", dict.fromkeys((False, True), 33))
    monkeypatch.setattr(configs, "tile", lambda target, *of: of_level(AMX if target.kind == "cpu" else target, *of))
    monkeypatch.setattr(api.MATMUL, "_calls", {})
    api._matmul.again.forget()
    monkeypatch.setattr(api._matmul, "again", Again())
    api.MATMUL.plan.cache_clear()
    yield
    api.MATMUL.plan.cache_clear()


def operands(m, n, k, turned=""):
    """a (m, k) and b (k, n), of which `turned` names the transposed ones; NaN lies between all rows."""
    shapes = ((k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    held = [torch.nn.functional.pad(torch.randn(*s), (0, 5), value=torch.nan).half()[:, :-5] for s in shapes]
    return [x.T if name in turned else x for name, x in zip("ab", held)]


def families(*args, **options):
    return {kernel.spec.family for kernel in tile_ops.explain(tile_ops.matmul, *args, **options).kernels}


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("m", "n", "k"), [(57, 129, 513), (130, 257, 260), (300, 70, 1030), (513, 64, 33)])
def test_agrees(everywhere, ran, close, m, n, k, turned):
    """Rows, columns and steps that fill no tile, by all of these."""
    a, b = operands(m, n, k, turned)
    assert families(a, b) == {"gemm_pairs"}
    for _ in range(3):  # the third call's kernels are prepared
        c = ran(tile_ops.matmul, a, b)
    close(c, reference.matmul(a, b), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(("turned", "m"), [("", 65), ("b", 65), ("b", 40)])
def test_in_tile_registers(in_registers, ran, close, turned, m):
    """Few rows by a transposed matrix as the transpose of c."""
    in_registers(api.MATMUL, api._matmul)
    a, b = operands(m, 450, 300, turned)
    bias = torch.randn(450).half()
    assert families(a, b, bias=bias, activation="gelu") == {"gemm_pairs"}
    for _ in range(3):
        c = ran(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    close(c, reference.matmul(a, b, bias=bias, activation="gelu"), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("m", [140, 40])
def test_bias_activation_and_type_of_the_result(everywhere, ran, close, out_dtype, activation, m):
    a, b = operands(m, 300, 300, "b")
    options = {"bias": torch.linspace(-1, 1, 300).to(out_dtype), "activation": activation, "out_dtype": out_dtype}
    c = ran(tile_ops.matmul, a, b, **options)
    assert c.dtype == out_dtype
    exact = reference.matmul(a, b, bias=options["bias"], activation=activation)
    close(c, exact, reference.TOLERANCES[str(out_dtype).removeprefix("torch.")])


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 3), (2, 1)), ((2, 1), (2, 3)), ((3,), (2, 3)), ((2, 3), (3,))],
)
def test_several_matrices(everywhere, ran, close, of_a, of_b):
    """Their own, one for all, one for neighbours, each in turn."""
    a, b = torch.randn(*of_a, 60, 300).half(), torch.randn(*of_b, 300, 90).half()
    assert families(a, b) == {"gemm_pairs"}
    for left, right in ((a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT)):
        close(ran(tile_ops.matmul, left, right), reference.matmul(left, right), TOLERANCE)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_more_and_fewer_rows_than_the_average(everywhere, monkeypatch, ran, close, turned):
    """Each is a product by the kernels for the average."""
    for name in ("WORK", "WORK_BY_ROWS"):
        monkeypatch.setattr(grouped, name, 0)
    monkeypatch.setattr(GROUPED_MATMUL, "_calls", {})
    GROUPED_MATMUL.plan.cache_clear()
    x, weights = torch.randn(200, 300).half(), torch.randn(5, 300, 70).half()
    weights = weights.mT.contiguous().mT if turned else weights
    sizes = torch.tensor([150, 0, 1, 7, 42])
    families = {kernel.spec.family for kernel in tile_ops.explain(tile_ops.grouped_matmul, x, weights, sizes).kernels}
    assert families == {"gemm_pairs"}
    exact = reference_of_groups.grouped_matmul(x, weights, sizes)
    for _ in range(2):
        close(ran(tile_ops.grouped_matmul, x, weights, sizes), exact, TOLERANCE)
    GROUPED_MATMUL.plan.cache_clear()


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("m", [150, 41])
def test_a_result_of_any_pitch(everywhere, close, m):
    """What lies between its rows stays."""
    a, b = operands(m, 303, 402, "b")
    whole = torch.full((m, 310), 7.0, dtype=torch.float16)
    tile_ops.matmul(a, b, out=whole[:, :303])
    close(whole[:, :303], reference.matmul(a, b), TOLERANCE)
    assert (whole[:, 303:] == 7).all()


@pytest.mark.cpu("its kernels")
def test_every_number_is_its_two_parts(everywhere, ran):
    """All finite ones, denormals too, by a matrix of ones and zeros, bit for bit."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    every = every[every.isfinite()].view(-1, 256)
    assert torch.equal(ran(tile_ops.matmul, every, torch.eye(256).half()), every)
    assert torch.equal(ran(tile_ops.matmul, torch.eye(len(every)).half(), every), every)


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00, 0x7FFF, 0x7C01], ids=["inf", "-inf", "nan", "long", "signal"])
def test_what_is_not_finite_stays_so(everywhere, ran, bits):
    """And in its row or column alone: an infinity by a number whose low part is zero, and by one whose is not."""
    odd = torch.tensor([bits], dtype=torch.int32).to(torch.int16).view(torch.float16)
    a, b = torch.randn(60, 300).half(), torch.ones(300, 70).half()
    b[7, 1::2] = 1.001
    for x, at in ((a, (3, 7)), (b, (7, 5))):
        given = x.clone()
        given[at] = odd
        left, right = (given, b) if x is a else (a, given)
        expected = left.float() @ right.float()
        for order in (right, right.T.contiguous().T):
            found = ran(tile_ops.matmul, left, order).float()
            assert torch.equal(found.isnan(), expected.isnan())
            assert torch.equal(found.isinf(), expected.isinf())
            assert torch.equal(found[found.isinf()], expected[expected.isinf()])


@pytest.mark.cpu("its kernels")
def test_sums_that_float16_does_not_hold(everywhere, ran):
    a, b = torch.full((60, 300), 60000.0).half(), torch.full((300, 70), 60000.0).half()
    assert (ran(tile_ops.matmul, a, b) == torch.inf).all()
    assert (ran(tile_ops.matmul, a, -b) == -torch.inf).all()


@pytest.mark.cpu("its kernels")
@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("m", [200, 40])
def test_bits_do_not_depend_on_threads(everywhere, monkeypatch, threads, m):
    a, b = operands(m, 1000 + threads, 410, "b")
    found = []
    for count in (1, threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        found += [tile_ops.matmul(a, b) for _ in range(3)]
    assert all(torch.equal(x, found[0]) for x in found)


@pytest.mark.parametrize(
    ("m", "k", "tile", "by_transposed"),
    [
        (32, 1024, None, None),
        (33, 1024, None, (64, 512, 512)),
        pytest.param(57, 1024, (64, 128, 256), (64, 512, 512), marks=pytest.mark.full),
        (60, 200, (64, 128, 256), (64, 512, 256)),
        (65, 513, (128, 64, 512), ...),
        (65, 300, (128, 64, 512), ...),
        (129, 1024, (256, 128, 256), ...),
        pytest.param(257, 1024, (512, 64, 256), ..., marks=pytest.mark.full),
        pytest.param(257, 128, (512, 64, 128), ..., marks=pytest.mark.full),
        (257, 64, (512, 64, 64), ...),
    ],
)
def test_tiles(m, k, tile, by_transposed):
    for turned in ((False, False), (False, True), (True, False)):
        problem = GemmProblem(1, m, 1024, k, "float16", "float16", *turned, "each", "each", None, None, False)
        found = dict(plan(problem, AMX).kernels)
        expected = by_transposed if turned[1] and by_transposed is not ... else tile
        assert ("pairs" in found) == (expected is not None)
        if expected is not None:
            arguments = dict(found["pairs"].arguments)
            assert tuple(arguments[name] for name in ("block_m", "block_n", "block_k")) == expected
            assert set(found.values()) <= set(shipped(AMX))


def test_where_products_go_another_way():
    """Other levels and types, a result of float32, few multiplications, and a small result of many."""
    for level in ("v3", "v4", "v4+bf16+vnni"):
        assert of_level(Target("cpu", f"x86-64-{level}"), "float16", "float16", 512, 512, 512) is None
    assert of_level(Target("cuda", "sm_90a"), "float16", "float16", 512, 512, 512) is None
    assert of_level(AMX, "bfloat16", "bfloat16", 512, 512, 512) is None
    assert of_level(AMX, "float16", "float32", 512, 512, 512) is None
    assert of_level(AMX, "float16", "float16", 64, 64, 64) is None
    assert of_level(AMX, "float16", "float16", 100, 100, 4096) is None
