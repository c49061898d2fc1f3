"""Text of kernels built by hand; test_cuda_target.py compiles them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tvm import ir
from tvm import tirx as tir
from tvm.tirx import AllocBuffer, Bind, BufferStore, DeclBuffer, Evaluate, For, ForKind, IfThenElse, SeqStmt

from tile_compiler.cfamily.dialect import CUDA, HIP
from tile_compiler.cfamily.printer import KernelInput, print_source
from tile_compiler.errors import UnsupportedOnTarget

from . import simt_kernels as simt
from .simt_kernels import Load, at, buffer, call, do, kernel, local, loop, number, origin, row, shared, var


def body_of(made: KernelInput) -> str:
    """The lines between the braces, without indentation of the first level."""
    text = print_source([made], CUDA)
    inner = text[text.index(") {\n") + 4 : text.rindex("}")]
    return "\n".join(line.removeprefix("  ") for line in inner.splitlines())


def stored(value: Any, dtype: str = "int32", **ranges: int) -> str:
    """How a value is printed as the right side of `out = value`; its variables are scalar parameters."""
    out = buffer("out", (1,), dtype)
    nodes = {n for n in simt.tile_ir_walk(value) if isinstance(n, ir.Var) and not tir.is_buffer_var(n)}
    scalars = sorted(nodes, key=lambda v: v.name)
    body: Any = BufferStore(out, value, [number(0)])
    positive = frozenset(v for v in scalars if v.name in ("n", "m"))
    text = body_of(kernel(body, [out], scalars, nothing_negative=positive))
    return text.splitlines()[-1].removeprefix("out[0] = ").removesuffix(";")


I, J, N = var("i"), var("j"), var("n")
F, H = var("f", "float32"), var("h", "float16")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((I + J) * 2, "(i + j) * 2"),
        (I - (J - 1), "i - (j - 1)"),
        (I + (J + 1), "i + j + 1"),
        (tir.floordiv(I, number(8)), "i >> 3"),
        (tir.floormod(I, number(8)), "i & 7"),
        (tir.floordiv(N, number(3)), "n / 3"),
        (tir.floormod(N * 2 + 1, number(3)), "(n * 2 + 1) % 3"),
        (tir.floordiv(I, number(3)), "floor_divide(i, 3)"),
        (tir.floormod(I, J), "floor_remainder(i, j)"),
        (tir.floormod(N, number(3)) * 4, "(n % 3) * 4"),
        ((I ^ J) & 3, "(i ^ j) & 3"),
        (I ^ (J & 3), "i ^ (j & 3)"),
        (I << number(4), "i << 4"),
        (I << J, "shift_left(i, j)"),
        (tir.Select(I < J, I, J + 1), "i < j ? i : j + 1"),
        (tir.Min(I, J), "min(i, j)"),
        (number(-5) - number(-3) + I, "-2 + i"),
        (tir.Cast("int32", F), "tl::to_integer<int>(f)"),
        (tir.Cast("int32", H), "tl::to_integer<int>((float)h)"),
        (tir.Cast("int32", var("b", "int8") + tir.const(1, "int8")), "(int)(int8_t)(b + (int8_t)1)"),
        (tir.const(-(2**31), "int32") + I, "-2147483647 - 1 + i"),
        (tir.popcount(I), "__popc(i)"),
    ],
)
def test_integers(value: Any, text: str) -> None:
    assert stored(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (F * tir.FloatImm("float32", 0.1), "f * 0.1f"),
        (tir.Mul(F, tir.FloatImm("float32", 0.0)) + (F - F), "f * 0.0f + (f - f)"),
        (tir.FloatImm("float32", float("-inf")) + F, "-INFINITY + f"),
        (tir.FloatImm("float32", 1e30) + F, "1e+30f + f"),
        (tir.exp2(F), "exp2f(f)"),
        (tir.sigmoid(F - tir.FloatImm("float32", 1.0)), "1.0f / (1.0f + expf(-(f - 1.0f)))"),
        (tir.Max(F, tir.FloatImm("float32", 0.0)), "fmaxf(f, 0.0f)"),
        (tir.Cast("float32", H), "(float)h"),
        (tir.Cast("float32", I + J), "(float)(i + j)"),
        (tir.if_then_else(I < J, F, tir.FloatImm("float32", 0.0)), "i < j ? f : 0.0f"),
        (tir.reinterpret("float32", I), "bit_cast<float>(i)"),
    ],
)
def test_floats(value: Any, text: str) -> None:
    assert stored(value, "float32") == text


def test_half_arithmetic_stays_in_half() -> None:
    one = tir.FloatImm("float16", 0.5)
    assert stored(H * H + one, "float16") == "h * h + tl::half_t(0.5f)"
    assert stored(tir.exp(H), "float16") == "tl::half_t(expf((float)h))"
    assert stored(tir.Cast("float16", F), "float16") == "tl::half_t(f)"
    assert stored(tir.Max(H, one), "float16") == "tl::half_t(fmaxf((float)h, (float)tl::half_t(0.5f)))"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_in_a_word_are_its_halves(dtype: str) -> None:
    """Not two computations: what is done to both is then one instruction for pairs."""
    word = var("w", "uint32")
    halves = [
        tir.Cast("uint16", word & tir.const(0xFFFF, "uint32")),
        tir.Cast("uint16", word >> tir.const(16, "uint32")),
    ]
    kind = {"float16": "tl::half_t", "bfloat16": "tl::bfloat16_t"}[dtype]
    low, high = (stored(tir.reinterpret(dtype, half), dtype) for half in halves)
    assert (low, high) == (f"tl::low_half<{kind}>(w)", f"tl::high_half<{kind}>(w)")
    shifted = tir.Cast("uint16", word >> tir.const(15, "uint32"))
    assert stored(tir.reinterpret(dtype, shifted), dtype) == f"bit_cast<{kind}>((uint16_t)(w >> 15u))"


def test_data_wraps_and_indices_do_not_overflow() -> None:
    x, small = buffer("x", (8,), "int32"), buffer("small", (8,), "int8")
    a, b = Load(x, [I]), Load(x, [J * 2 + 1])
    t = var("t")
    narrow = tir.Cast("int32", Load(small, [I])) * tir.Cast("int32", Load(small, [J]))
    stores = [
        BufferStore(x, a * 3 + b, [number(0)]),  # stored as it is: the low bits are right anyway
        BufferStore(x, (a + b) >> 1, [number(1)]),
        BufferStore(x, a + narrow, [I]),
        BufferStore(x, narrow >> 1, [number(2)]),
        BufferStore(x, tir.Select(t + 1 > t, I + 1, J), [a * 4 + 1]),
    ]
    lines = body_of(kernel(SeqStmt([Bind(t, a), *stores]), [x, small], [I, J])).splitlines()
    assert lines == [
        "const int t = x[i];",
        "x[0] = x[i] * 3 + x[j * 2 + 1];",
        "x[1] = (int)((uint32_t)x[i] + (uint32_t)x[j * 2 + 1]) >> 1;",
        "x[i] += (int)small[i] * (int)small[j];",
        "x[2] = ((int)small[i] * (int)small[j]) >> 1;",
        "x[x[i] * 4 + 1] = (int)((uint32_t)t + (uint32_t)1) > t ? i + 1 : j;",
    ]


def test_helpers_are_defined_when_used() -> None:
    out = buffer("out", (4,), "int32")
    text = print_source([kernel(BufferStore(out, tir.floordiv(I, J), [number(0)]), [out], [I, J])], CUDA)
    assert text.count("T floor_divide(T a, T b)") == 1
    assert "floor_remainder" not in text


def test_vector_add(golden: Any) -> None:
    golden(print_source([simt.vector_add(var("n"))], CUDA))


def test_gemm(golden: Any) -> None:
    golden(print_source([simt.gemm()[0]], CUDA))


def test_rows_move_whole_between_memories() -> None:
    a, s, r = buffer("A", (64,), "float16"), buffer("S", (64,), "float16", "shared.dyn"), local("R", 8, "float16")
    tx = var("tx")
    body = SeqStmt(
        [
            shared(s, 256),
            AllocBuffer(r),
            BufferStore(s, Load(a, [row(tx * 8, 8)]), [row(tx * 8, 8)]),
            do("tl::sync_threads"),
            BufferStore(r, Load(s, [row(tx * 8, 8)]), [row(number(0), 8)]),
            BufferStore(a, Load(r, [row(number(0), 8)]), [row(tx * 8, 8)]),
        ]
    )
    assert body_of(kernel(body, [a], **axis(tx, 8))) == "\n".join(
        [
            "const int tx = threadIdx.x;",
            "tl::half_t *S = (tl::half_t *)(tl::shared_memory() + 256);",
            "alignas(16) tl::half_t R[8];",
            "*(tl::vec<tl::half_t, 8> *)&S[tx * 8] = *(const tl::vec<tl::half_t, 8> *)&A[tx * 8];",
            "tl::sync_threads();",
            "*(tl::vec<tl::half_t, 8> *)R = *(const tl::vec<tl::half_t, 8> *)&S[tx * 8];",
            "*(tl::vec<tl::half_t, 8> *)&A[tx * 8] = *(const tl::vec<tl::half_t, 8> *)R;",
        ]
    )


def axis(tx: Any, count: int) -> dict[str, Any]:
    return {"threads": ((tx, number(count)),)}


def test_a_guarded_row_is_read_only_where_it_is_taken(golden: Any) -> None:
    a, c = buffer("A", (64,)), buffer("C", (64,))
    zero = tir.Broadcast(tir.FloatImm("float32", 0.0), 4)
    value = tir.if_then_else(I < 60, Load(a, [row(I, 4)]) * tir.Broadcast(Load(a, [number(0)]), 4), zero)
    golden(body_of(kernel(BufferStore(c, value, [row(I, 4)]), [a, c], [I])))


def test_a_scalar_that_a_lane_overwrites_is_read_first() -> None:
    r = local("R", 4)
    value = Load(r, [row(number(0), 4)]) / tir.Broadcast(Load(r, [number(0)]), 4)
    out = buffer("out", (4,))
    store = BufferStore(out, Load(r, [row(number(0), 4)]), [row(number(0), 4)])
    lines = body_of(kernel(SeqStmt([AllocBuffer(r), BufferStore(r, value, [row(number(0), 4)]), store]), [out]))
    assert "const float R_value = R[0];" in lines
    assert "R[lane] = R[lane] / R_value;" in lines


def test_indices_have_64_bits_where_the_tensor_may_need_them() -> None:
    def index(shape: Any, strides: Any = None) -> str:
        a = buffer("A", shape, strides=strides)
        scalars = {v for e in (*shape, *(strides or ())) if isinstance(e, ir.Var) for v in [e]}
        made = kernel(BufferStore(a, F, [I, J]), [a], [I, J, F, *scalars], nothing_negative=frozenset(scalars))
        return body_of(made).partition(" = ")[0]

    assert index((1024, 64)) == "A[i * 64 + j]"
    assert index((1 << 20, 4096)) == "A[(int64_t)i * 4096 + j]"
    assert index((N, 64)) == "A[(int64_t)i * 64 + j]"
    assert index((64, N)) == "A[(int64_t)i * n + j]"
    assert index((64, 64), (N, number(1))) == "A[(int64_t)i * n + j]"
    assert index((64, 64), (number(100), number(1))) == "A[i * 100 + j]"


def test_a_swizzled_place_has_a_name() -> None:
    s, out = buffer("S", (4096,), "float16", "shared.dyn"), buffer("out", (4,), "float16")
    place = I * 64 + J * 8
    swizzled = place ^ ((place >> 3) & 24)
    read = BufferStore(out, Load(s, [swizzled]), [number(0)])
    taken = do("tl::ldmatrix_x1", at(out, number(0)), at(s, swizzled))
    guarded = IfThenElse(Load(s, [swizzled]) > H, taken, None)
    text = body_of(kernel(SeqStmt([shared(s, 0), read, guarded]), [out], [I, J, H]))
    assert text.splitlines()[1:] == [
        "const int S_place = i * 64 + j * 8;",
        "out[0] = S[S_place ^ ((S_place >> 3) & 24)];",
        "if (S[(i * 64 + j * 8) ^ (((i * 64 + j * 8) >> 3) & 24)] > h) {",
        "  const int S_place_1 = i * 64 + j * 8;",
        "  tl::ldmatrix_x1(out, &S[S_place_1 ^ ((S_place_1 >> 3) & 24)]);",
        "}",
    ]


def test_what_nothing_uses_is_left_out() -> None:
    unused, kept, out = local("unused", 8), local("kept", 1), buffer("out", (4,))
    body = SeqStmt(
        [
            AllocBuffer(unused),
            AllocBuffer(kept),
            Bind(var("forgotten"), I + 1),
            origin("T.nothing()", Evaluate(number(0))),
            BufferStore(kept, F, [number(0)]),
            IfThenElse(tir.const(False, "bool"), BufferStore(out, F, [number(1)]), None),
            loop(1, lambda k: BufferStore(out, Load(kept, [number(0)]), [k * 4 + 2]), "k"),
            loop(0, lambda k: BufferStore(out, F, [k]), "k"),
        ]
    )
    assert body_of(kernel(body, [out], [I, F])) == "float kept;\nkept = f;\nout[2] = kept;"


def test_control_flow(golden: Any) -> None:
    out, total = buffer("out", (64,), "int32"), local("total", 1, "int32")
    add = BufferStore(total, Load(total, [number(0)]) + 1, [number(0)])
    brk, cont = Evaluate(tir.break_loop()), Evaluate(tir.continue_loop())
    k = var("k")
    body = SeqStmt(
        [
            AllocBuffer(total),
            BufferStore(total, number(0), [number(0)]),
            tir.While(Load(total, [number(0)]) < N, SeqStmt([add, IfThenElse(I == J, brk, None)])),
            For(
                k,
                I,
                N,
                ForKind.SERIAL,
                IfThenElse(k < 3, cont, IfThenElse(k < 5, add, BufferStore(out, k, [k]))),
            ),
            loop(Load(out, [number(0)]), lambda q: BufferStore(out, q, [q]), "q"),
            IfThenElse(I < J, Evaluate(number(0)), add),
            BufferStore(out, Load(total, [number(0)]), [number(0)]),
        ]
    )
    golden(body_of(kernel(body, [out], [I, J, N], nothing_negative=frozenset([N]))))


def test_the_end_of_a_loop_that_a_condition_chooses() -> None:
    """`i < j < n ? 4 : n` would compare the truth of i < j."""
    out, count, n = buffer("out", (64,), "int32"), var("i"), var("n")
    end = tir.if_then_else(J < n, number(4), n)
    body = For(count, number(0), end, ForKind.SERIAL, BufferStore(out, count, [count]))
    assert "for (int i = 0; i < (j < n ? 4 : n); ++i) {" in body_of(kernel(body, [out], [J, n]))


def test_views_atomics_and_diagnostics(golden: Any) -> None:
    s, words = buffer("S", (128,), "float16", "shared.dyn"), buffer("words", (64,), "uint32", "shared.dyn")
    out = buffer("out", (64,), "uint32")
    old = var("old", "uint32")
    body = SeqStmt(
        [
            shared(s, 0),
            DeclBuffer(words, data=tir.buffer_data(s)),
            Bind(old, call("tl::atomic_add", at(out, I), tir.const(1, "uint32"), dtype="uint32")),
            BufferStore(out, Load(words, [I]) ^ old, [I]),
            do("tl::device_assert", I < 64, number(1)),
            do("tl::print", ir.StringImm('x = %d "quoted"\n'), I),
        ]
    )
    golden(body_of(kernel(body, [out], [I])))


def test_user_names_that_c_knows_already() -> None:
    float_, main = buffer("float", (4,)), buffer("main", (4,))
    text = print_source([kernel(BufferStore(main, Load(float_, [number(0)]), [number(1)]), [float_, main])], CUDA)
    assert "main_1[1] = float_1[0];" in text
    assert "const float *__restrict__ float_1,\n" in text


def test_a_comment_cannot_end_the_line_or_swallow_the_next() -> None:
    out = buffer("out", (4,))
    store = BufferStore(out, F, [number(0)])
    text = body_of(kernel(origin("T.copy(x)\n#error  \\", store), [out], [F]))
    assert text == "// T.copy(x) #error\nout[0] = f;"


def test_launch_bounds_and_kernels_of_one_file() -> None:
    out = buffer("out", (4,))
    store = BufferStore(out, F, [number(0)])
    threads = ((var("tx"), number(256)),)
    one = kernel(store, [out], [F], symbol="a_kernel", min_blocks=2, threads=threads)
    two = kernel(store, [out], [F], symbol="a_kernel_1", threads=threads)
    text = print_source([one, two], CUDA, ["__device__ int mine() { return 1; }"])
    heads = re.findall(r"__launch_bounds__\((.*?)\) (\w+)\(", text)
    assert heads == [("256, 2", "a_kernel"), ("256", "a_kernel_1")]
    assert text.index("mine") < text.index("a_kernel")
    assert "__launch_bounds__(256, 2) a_kernel(" in print_source([one], HIP)  # 2 blocks of 4 waves on 4 SIMDs
    assert text.count("#include") == 1


def test_what_cannot_be_printed_says_why() -> None:
    out = buffer("out", (4,))
    with pytest.raises(UnsupportedOnTarget, match="only serial and unrolled"):
        print_source([kernel(loop(4, lambda i: BufferStore(out, F, [i]), kind=ForKind.VECTORIZED), [out], [F])], CUDA)
    with pytest.raises(UnsupportedOnTarget, match="is not defined here"):
        print_source([kernel(BufferStore(out, F, [number(0)]), [out])], CUDA)
    with pytest.raises(UnsupportedOnTarget, match="is not declared here"):
        print_source([kernel(BufferStore(out, F, [number(0)]), [], [F])], CUDA)
