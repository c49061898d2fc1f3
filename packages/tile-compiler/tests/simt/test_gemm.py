"""Products: tensor instructions for every element type and form of operand, and plain multiply-add."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threads as simt

import tilelang.language as T
from tile_compiler.simt.errors import ThreadsDoNotFit


def tiles(rng: Any, dtype: str, *shapes: tuple[int, int]) -> list[Any]:
    kind = T.dtype(dtype).as_numpy()
    if dtype in ("int8", "uint8"):
        return [rng.integers(0 if dtype == "uint8" else -9, 9, s).astype(kind) for s in shapes]
    return [rng.standard_normal(s).astype(kind) for s in shapes]


def product(
    shape: tuple[int, int, int],
    types: tuple[str, str, str],
    threads: int,
    trans: tuple[bool, bool] = (False, False),
    scopes: str = "ss",
    **how: Any,
) -> Any:
    """C (m, n) = 1 + A @ B in one block; `scopes`: shared (s) or registers (r), of A and of B."""
    m, n, k = shape
    a_type, b_type, c_type = types
    shape_a, shape_b = ((k, m) if trans[0] else (m, k)), ((n, k) if trans[1] else (k, n))
    alloc_a, alloc_b = (T.alloc_fragment if s == "r" else T.alloc_shared for s in scopes)

    @T.prim_func
    def product(A: T.Tensor(shape_a, a_type), B: T.Tensor(shape_b, b_type), C: T.Tensor((m, n), c_type)):
        with T.Kernel(1, threads=threads) as bx:
            a = alloc_a(shape_a, a_type)
            b = alloc_b(shape_b, b_type)
            c = T.alloc_fragment((m, n), c_type)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            T.gemm(a, b, c, transpose_A=trans[0], transpose_B=trans[1], **how)
            T.copy(c, C)

    return product


def operands(rng: Any, shape: tuple[int, int, int], types: tuple[str, str, str], trans: tuple[bool, bool]) -> list[Any]:
    m, n, k = shape
    (a,) = tiles(rng, types[0], (k, m) if trans[0] else (m, k))
    (b,) = tiles(rng, types[1], (n, k) if trans[1] else (k, n))
    return [a, b, np.zeros((m, n), T.dtype(types[2]).as_numpy())]


def notes(ctx: Any) -> str:
    return "\n".join(text for _, text in ctx.report.notes if text.startswith("gemm"))


TURNS = [(False, False), (False, True), (True, False), (True, True)]
F8, F8_2 = "float8_e4m3fn", "float8_e5m2"
FNUZ = "float8_e4m3fnuz"


@pytest.mark.parametrize(
    "trans", [*TURNS[:2], *(pytest.param(t, marks=pytest.mark.full) for t in TURNS[2:])], ids=["nn", "nt", "tn", "tt"]
)
@pytest.mark.parametrize(
    ("types", "arch", "instruction"),
    [
        (("float16", "float16", "float32"), "sm_80", "tl::mma_m16n8k16_f32_f16"),
        (("float16", "float16", "float16"), "sm_80", "tl::mma_m16n8k16_f16_f16"),
        (("float16", "float16", "float32"), "sm_75", "tl::mma_m16n8k8_f32_f16"),
        (("bfloat16", "bfloat16", "float32"), "sm_80", "tl::mma_m16n8k16_f32_bf16"),
        (("int8", "int8", "int32"), "sm_80", "tl::mma_m16n8k32_s32_s8"),
        (("uint8", "int8", "int32"), "sm_80", "tl::mma_m16n8k32_s32_u8_s8"),
        (("int8", "int8", "int32"), "sm_75", "tl::mma_m8n8k16_s32_s8"),
        ((F8, F8, "float32"), "sm_89", "tl::mma_m16n8k32_f32_e4m3"),
        ((F8, F8_2, "float32"), "sm_90", "tl::mma_m16n8k32_f32_e4m3_e5m2"),
        (("float32", "float32", "float32"), "sm_80", ""),
        (("bfloat16", "bfloat16", "float32"), "sm_75", ""),
        ((F8, F8, "float32"), "sm_80", ""),
        (("float16", "float16", "float32"), "gfx942", "tl::mfma_32x32x8_f32_f16"),
        (("float16", "float16", "float16"), "gfx942", "tl::mfma_32x32x8_f32_f16"),
        (("bfloat16", "bfloat16", "bfloat16"), "gfx942", "tl::mfma_32x32x8_f32_bf16"),
        (("float32", "float32", "float32"), "gfx942", "tl::mfma_32x32x2_f32_f32"),
        (("int8", "int8", "int32"), "gfx942", "tl::mfma_32x32x16_i32_i8"),
        ((FNUZ, FNUZ, "float32"), "gfx942", "tl::mfma_32x32x16_f32_e4m3fnuz"),
        pytest.param((F8, F8, "float32"), "gfx942", "", marks=pytest.mark.full),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_types_and_transposes(
    rng: Any, check: Any, types: tuple[str, str, str], arch: str, instruction: str, trans: tuple[bool, bool]
) -> None:
    shape = (32, 64, 64)
    loose = 2e-2 if types[2] in ("float16", "bfloat16") else 1e-4
    func = product(shape, types, 128, trans)
    trace, ctx = check(func, operands(rng, shape, types, trans), rtol=loose, atol=1e-2, arch=arch, passes=False)
    found = simt.calls(trace.steps[-1].after, "tl::m")
    assert bool(found) == bool(instruction)
    assert all(str(f.args[0].value) == instruction for f in found)
    wider = types[2] == "bfloat16" or (types[2] == "float16" and arch == "gfx942")
    assert ("summed in float32" in notes(ctx)) == wider


@pytest.mark.parametrize(
    ("arch", "dtype"), [("sm_75", "int8"), ("sm_80", "float16"), ("sm_80", "float64"), ("gfx942", "float16")]
)
@pytest.mark.parametrize("trans", TURNS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("scopes", ["rs", "sr", "rr"])
def test_operands_in_registers_of_every_kind(
    rng: Any, check: Any, scopes: str, trans: tuple[bool, bool], arch: str, dtype: str
) -> None:
    """Also transposed, and where no instruction exists: then through shared memory, and the report says so."""
    shape, result = (32, 64, 32), {"float16": "float32", "int8": "int32"}.get(dtype, "float64")
    types = (dtype, dtype, result)
    _, ctx = check(
        product(shape, types, 128, trans, scopes), operands(rng, shape, types, trans), arch=arch, passes=False
    )
    turned = any(t and s == "r" for t, s in zip(trans, scopes))
    alone = dtype == "float64"
    assert ("through shared memory, as it is stored transposed" in notes(ctx)) == (turned and not alone)
    assert ("through shared memory, as it is read by other threads" in notes(ctx)) == alone


@pytest.mark.parametrize("k_pack", [1, 2])
@pytest.mark.parametrize("scopes", ["ss", "rs"])
@pytest.mark.parametrize("arch", ["sm_80", "gfx942"])
def test_k_pack(rng: Any, check: Any, arch: str, scopes: str, k_pack: int) -> None:
    """On CDNA a lane reads twice as many neighbours at once; on NVIDIA it means nothing, and the report says so."""
    shape, types, trans = (64, 64, 64), ("float16", "float16", "float32"), (False, True)
    func = product(shape, types, 256, trans, scopes, k_pack=k_pack)
    _, ctx = check(func, operands(rng, shape, types, trans), arch=arch, rtol=1e-4, atol=1e-4)
    if arch == "gfx942":
        assert f"b to registers by {8 * k_pack} bytes at a time" in notes(ctx)
    assert ("k_pack has no effect" in notes(ctx)) == (arch == "sm_80" and k_pack == 2)


@pytest.mark.parametrize("arch", ["sm_80", "gfx942"])
@pytest.mark.parametrize("k", [12, 14])
@pytest.mark.parametrize("trans", TURNS, ids=["nn", "nt", "tn", "tt"])
def test_dot_products_of_bytes(rng: Any, check: Any, trans: tuple[bool, bool], k: int, arch: str) -> None:
    """A tile that is no multiple of an instruction: dp4a where k is a multiple of 4, else multiply-add."""
    shape, types = (10, 12, k), ("int8", "int8", "int32")
    args = operands(rng, shape, types, trans)
    trace, ctx = check(product(shape, types, 64, trans), args, arch=arch, passes=False)
    assert bool(simt.calls(trace.steps[-1].after, "tl::dot4")) == (k == 12)
    assert f"the tile 10 x 12 x {k} is no multiple of" in notes(ctx)
    assert ("k = 14 is no multiple of 4" in notes(ctx)) == (k == 14)


def test_the_report_says_which_architectures_have_an_instruction(lower: Any) -> None:
    _, ctx = lower(product((16, 16, 32), (F8, F8, "float32"), 32), "sm_80")
    assert f"sm_80 has no matrix instruction for {F8} x {F8} -> float32; it exists on sm_89 and newer" in notes(ctx)
    _, ctx = lower(product((16, 16, 32), ("int16", "int16", "int32"), 32), "sm_90")
    assert "no architecture has a matrix instruction for int16 x int16 -> int32" in notes(ctx)


@pytest.mark.parametrize("scopes", ["ss", "rs"])
def test_tf32_when_asked_for(rng: Any, check: Any, scopes: str) -> None:
    """Operands are rounded to 10 bits of mantissa, to nearest."""
    shape, types, trans = (32, 32, 16), ("float32", "float32", "float32"), (False, False)
    func, args = product(shape, types, 64, trans, scopes), operands(rng, shape, types, trans)
    trace, ctx = check(func, args, rtol=0, atol=2e-2, passes=False, options={"tl.allow_tf32": True})
    assert simt.calls(trace.steps[-1].after, "tl::mma_m16n8k8_f32_tf32")
    _, ctx = check(func, args, rtol=1e-5, atol=1e-5, passes=False)
    assert "'tl.allow_tf32': True} rounds A and B to tf32" in notes(ctx)


@pytest.mark.parametrize("scopes", ["ss", "rs", "sr"])
@pytest.mark.parametrize("shape", [(32, 32, 64), (32, 128, 40), (16, 24, 8)])
def test_three_tf32_when_asked_for(rng: Any, check: Any, scopes: str, shape: tuple[int, int, int]) -> None:
    """As close to float64 as float32 is. Where A comes from registers a lane has neighbours along k; where columns are no
    multiple of 32 it is an instruction of fewer; sums along more than 32 of k are added up outside of it."""
    types = ("float32", "float32", "float32")
    for trans in ((False, False), (False, True)):
        func, args = product(shape, types, 64, trans, scopes), operands(rng, shape, types, trans)
        trace, _ = check(func, args, rtol=0, atol=3e-5, passes=False, options={"tl.allow_tf32x3": True})
        name = f"tl::mma_m16n{8 if shape[1] % 32 else 32}k8_f32_tf32x3" + ("_pairs" if scopes[0] == "r" else "")
        assert simt.calls(trace.steps[-1].after, name)


@pytest.mark.parametrize(("arch", "wave", "counts"), [("sm_80", 32, "32, 64, 128, 256"), ("gfx942", 64, "64")])
def test_threads_that_are_no_whole_waves(lower: Any, arch: str, wave: int, counts: str) -> None:
    with pytest.raises(ThreadsDoNotFit) as caught:
        lower(product((32, 32, 32), ("float16", "float16", "float32"), 48), arch)
    text = str(caught.value)
    assert "T.gemm into c" in text
    assert f"48 threads; {'mma_m16n8k16' if wave == 32 else 'mfma_32x32x8'}_f32_f16 runs in waves of {wave}" in text
    assert f"{counts} threads for a tile of 32 x 32" in text
    assert "threads=32" in text or "threads=64" in text


@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
@pytest.mark.parametrize("threads", [32, 96, 128, 256])
def test_policies(rng: Any, check: Any, policy: Any, threads: int) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 48), "float16"), C: T.Tensor((64, 48), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 48), "float16")
            c = T.alloc_fragment((64, 48), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, policy=policy, clear_accum=True)
            T.copy(c, C)

    args = [*tiles(rng, "float16", (64, 32), (32, 48)), np.zeros((64, 48), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4, passes=False)


@pytest.mark.parametrize("which", ["a", "b", "ab"])
def test_operands_in_registers(rng: Any, check: Any, which: str) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((64, 32), "float16") if "a" in which else T.alloc_shared((64, 32), "float16")
            b = T.alloc_fragment((32, 64), "float16") if "b" in which else T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    args = [*tiles(rng, "float16", (64, 32), (32, 64)), np.zeros((64, 64), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4)


def test_result_of_one_product_is_operand_of_the_next(rng: Any, check: Any) -> None:
    """Full rows: no exchange between threads. Split columns: through shared memory, and the report says so."""
    for policy, exchanged in ((T.GemmWarpPolicy.FullRow, False), (T.GemmWarpPolicy.FullCol, True)):

        @T.prim_func
        def chain(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128) as bx:
                a = T.alloc_shared((64, 64), "float16")
                b = T.alloc_shared((64, 64), "float16")
                s = T.alloc_fragment((64, 64), "float32")
                p = T.alloc_fragment((64, 64), "float16")
                c = T.alloc_fragment((64, 64), "float32")
                T.copy(A, a)
                T.copy(B, b)
                T.gemm(a, b, s, clear_accum=True, policy=policy)
                T.copy(s, p)
                T.gemm(p, b, c, clear_accum=True, policy=policy)
                T.copy(c, C)

        args = [*tiles(rng, "float16", (64, 64), (64, 64)), np.zeros((64, 64), "float32")]
        _, ctx = check(chain, args, rtol=1e-2, atol=1e-2)
        assert any("through shared memory" in text for _, text in ctx.report.notes) == exchanged


def test_operands_in_global_memory_and_shared_result(rng: Any, check: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((30, 20), "float16"), B: T.Tensor((20, 24), "float16"), C: T.Tensor((30, 24), "float32")):
        with T.Kernel(1, threads=32) as bx:
            c = T.alloc_shared((32, 24), "float32")
            T.clear(c)
            T.gemm(A[0:32, 0:32], B[0:32, :], c)
            T.copy(c[0, 0], C)

    args = [*tiles(rng, "float16", (30, 20), (20, 24)), np.zeros((30, 24), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4)


def test_small_tile_that_two_distributions_need_is_given_to_all(rng: Any, check: Any) -> None:
    """Row sums of a product with an instruction scale one without: neither's threads have the other's rows."""

    @T.prim_func
    def mixed(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64) as bx:
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float32")
            fast = T.alloc_fragment((32, 32), "float32")
            slow = T.alloc_fragment((32, 32), "float32")
            rows = T.alloc_fragment((32,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, a, fast, clear_accum=True)
            T.gemm(b, b, slow, clear_accum=True)
            T.reduce_max(fast, rows, dim=1)
            for i, j in T.Parallel(32, 32):
                slow[i, j] += rows[i]
            T.copy(slow, C)

    args = [rng.standard_normal((32, 32)).astype(d) for d in ("float16", "float32")]
    _, ctx = check(mixed, [*args, np.zeros((32, 32), "float32")], rtol=1e-4, atol=1e-4)
    assert any("rows: every thread holds it" in text for _, text in ctx.report.notes)
