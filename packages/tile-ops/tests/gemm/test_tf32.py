"""float32 products rounded to tf32: where torch allows it, by the instruction that takes the operands as they lie."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.gemm import configs, padding, reference
from tile_ops.gemm.api import MATMUL
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import Target
from tile_ops.kernel.kernels import build

H200 = Target("cuda", "sm_90a")
TOLERANCE = 2e-3


@pytest.fixture
def allow_tf32():
    """Sets torch's switch for the time of a test; monkeypatch cannot, as torch hides that the attribute exists."""
    before = torch.backends.cuda.matmul.allow_tf32
    yield lambda allowed: setattr(torch.backends.cuda.matmul, "allow_tf32", allowed)
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture
def on_hopper(run_as, allow_tf32, monkeypatch):
    run_as("cuda -arch=sm_90a")
    allow_tf32(True)
    monkeypatch.setattr(MATMUL, "_calls", {})


def operands(m, n, k, trans, batch=()):
    """a (m, k) and b (k, n); those transposed are stored the other way round."""
    generator = torch.Generator().manual_seed(m + n + k)
    a, b = (
        torch.randn((*batch, *(shape[::-1] if t else shape)), generator=generator)
        for shape, t in zip(((m, k), (k, n)), trans)
    )
    return (a.mT if trans[0] else a), (b.mT if trans[1] else b)


def problem(m, n, k, trans, **others):
    flags = {"batch_a": "each", "batch_b": "each", "bias": None, "activation": None, "tf32": True} | others
    return GemmProblem(1, m, n, k, "float32", "float32", *trans, **flags)


def test_only_where_torch_allows_it(run_as, ran, close, allow_tf32):
    run_as("cuda -arch=sm_80", any_gpu=True)
    a, b = operands(20, 24, 32, (False, False))
    allow_tf32(False)
    assert "tl.allow_tf32" not in dict(tile_ops.explain(tile_ops.matmul, a, b).kernels[0].spec.pass_configs)
    allow_tf32(True)
    found = ran(tile_ops.matmul, a, b)
    close(found, reference.matmul(a, b), 2e-3)
    with pytest.raises(AssertionError):  # it was indeed rounded
        close(found, reference.matmul(a, b), reference.TOLERANCES["float32"])


@pytest.mark.parametrize(
    ("shape", "trans"),
    [
        pytest.param(
            *((128, 192, 64) if whole else (70, 133, 37), trans),
            id=f"{'whole' if whole else 'parts of'} tiles-{'nt'[trans[0]]}{'nt'[trans[1]]}",
            marks=[] if whole or not trans[1] else [pytest.mark.full],
        )
        for whole in (True, False)
        for trans in [(False, False), (False, True), (True, False), (True, True)]
    ],
)
def test_every_order_of_the_operands(on_hopper, ran, close, trans, shape):
    a, b = operands(*shape, trans)
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), TOLERANCE)


def nearest(x):
    """float32 with 10 bits of mantissa, ties to even."""
    bits = x.view(torch.int32)
    return (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("trans", [(False, False), (False, True)], ids=["nn", "nt"])
def test_operands_are_rounded_to_the_nearest(on_hopper, ran, trans):
    """As bulk copies bring them: the instruction alone would drop bits."""
    a, _ = operands(256, 128, 128, trans)
    a.view(torch.int32)[0, :4] = torch.tensor([0x3F801000, 0x3F803000, 0x3FFFF000, -0x407FD001], dtype=torch.int32)
    b = torch.eye(128)
    assert torch.equal(ran(tile_ops.matmul, a, b.mT if trans[1] else b), nearest(a))
    assert torch.equal(ran(tile_ops.matmul, torch.eye(256), a), nearest(a))


def test_bias_and_activation_of_a_transposed_result(on_hopper, ran, close):
    a, b = operands(72, 140, 36, (False, False))
    bias = torch.randn(140, generator=torch.Generator().manual_seed(1))
    found = ran(tile_ops.matmul, a, b, bias=bias, activation="gelu")
    close(found, reference.matmul(a, b, bias=bias, activation="gelu"), TOLERANCE)


def test_products_in_parts(on_hopper, ran, close):
    """Few tiles with a long k."""
    a, b = operands(64, 64, 1500, (False, False))
    assert {k.role for k in tile_ops.explain(tile_ops.matmul, a, b).kernels} == {"parts", "finish"}
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), 5 * TOLERANCE)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "a batch"])
@pytest.mark.parametrize(("m", "n", "which"), [(72, 132, "a"), (132, 72, "b")])
def test_the_smaller_operand_is_copied_where_neither_lies_along_k(
    on_hopper, ran, close, monkeypatch, batch, m, n, which
):
    """As for the gradient of a layer's weight. The second call, and those behind it, know their kernels."""
    monkeypatch.setattr(configs, "TURNED_PRODUCTS", 1)
    MATMUL.plan.cache_clear()
    try:
        a, b = operands(m, n, 37, (True, False), batch)
        assert {k.role for k in tile_ops.explain(tile_ops.matmul, a, b).kernels} == {f"transpose_{which}", "product"}
        for _ in range(4):
            a, b = torch.randn_like(a), torch.randn_like(b)
            close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), TOLERANCE)
    finally:
        MATMUL.plan.cache_clear()


def test_plans_on_hopper():
    for trans, tile in (((False, False), (256, 128)), ((False, True), (128, 256)), ((True, True), (128, 256))):
        ((_, spec),) = configs.plan(problem(8192, 8192, 4096, trans), H200).kernels
        found = dict(spec.arguments)
        assert (found["block_m"], found["block_n"], found["stages"]) == (*tile, 4)


def kernels_of(m, n, k, trans, target=H200):
    return configs.plan(problem(m, n, k, trans), target).kernels


def test_which_operand_is_copied():
    copy = configs.TRANSPOSE
    assert kernels_of(1024, 1024, 1024, (True, False)) == (
        ("transpose_a", copy),
        *kernels_of(1024, 1024, 1024, (False, False)),
    )
    assert kernels_of(4096, 64, 4096, (True, False)) == (
        ("transpose_b", copy),
        *kernels_of(4096, 64, 4096, (True, True)),
    )
    for m, n, k, arch in ((63, 8192, 8192, "sm_90a"), (512, 512, 512, "sm_90a"), (4096, 4096, 4096, "sm_80")):
        assert copy not in dict(kernels_of(m, n, k, (True, False), Target("cuda", arch))).values()


def test_an_operand_that_is_copied_along_k_gets_whole_rows_there(on_hopper, ran, close, monkeypatch):
    """k lies along no row that is given, but along those of the copy."""
    for module, name, value in ((configs, "TURNED_PRODUCTS", 1), (padding, "WORTH", 1)):
        monkeypatch.setattr(module, name, value)
    launched = []
    of = padding.Padded.of.__func__
    monkeypatch.setattr(
        padding.Padded, "of", classmethod(lambda cls, *args: launched.append(of(cls, *args)) or launched[-1])
    )
    a, b = operands(66, 70, 41, (True, False))
    assert padding.ROLE in [kernel.role for kernel in tile_ops.explain(tile_ops.matmul, a, b).kernels]
    close(ran(tile_ops.matmul, a, b), reference.matmul(a, b), TOLERANCE)
    (rows,) = launched
    assert (rows.a.shape, rows.b.shape) == ((1, 44, 68), (1, 44, 72))


@pytest.mark.parametrize("turned", [False, pytest.param(True, marks=pytest.mark.full)])
def test_large_tiles_keep_to_registers(turned):
    """The compiler warns of spills, which is an error here."""
    ((_, spec),) = configs.plan(problem(8192, 8192, 4096, (False, turned), bias="float32"), H200).kernels
    build(spec, H200.kind, H200.arch)
