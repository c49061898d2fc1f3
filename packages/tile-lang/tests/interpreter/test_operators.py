"""The meaning of each tile operator, through a kernel."""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from tilelang.interpreter import InterpreterError, run

RNG = np.random.default_rng(0)


def unary_tile(shape_in, shape_out, dtype, body, scratch="local.fragment"):
    """A one-block kernel: A into a tile, `body(tile, result)`, the result out to B."""

    @T.prim_func
    def main(A: T.Tensor(shape_in, dtype), B: T.Tensor(shape_out, dtype)):
        with T.Kernel(1, threads=32):
            x = T.alloc_buffer(shape_in, dtype, scope=scratch)
            y = T.alloc_buffer(shape_out, dtype, scope=scratch)
            T.copy(A, x)
            body(x, y)
            T.copy(y, B)

    return main


@pytest.mark.parametrize(
    "scopes", [("shared.dyn", "local.fragment"), ("local.fragment", "shared"), ("local", "shared")]
)
def test_copy_through_every_scope_converts(scopes):
    @T.prim_func
    def main(A: T.Tensor((8, 6), "float32"), B: T.Tensor((8, 6), "float16")):
        with T.Kernel(1, threads=4):
            x = T.alloc_buffer((8, 6), "float32", scope=scopes[0])
            y = T.alloc_buffer((8, 6), "float16", scope=scopes[1])
            T.copy(A, x)
            T.copy(x, y)
            T.copy(y, B)

    a, b = RNG.standard_normal((8, 6)).astype(np.float32), np.zeros((8, 6), np.float16)
    run(main, [a, b])
    np.testing.assert_array_equal(b, a.astype(np.float16))


def test_copy_matches_dimensions_without_ones():
    @T.prim_func
    def main(A: T.Tensor((2, 8, 3, 4), "int32"), B: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=4):
            x = T.alloc_shared((4, 4), "int32")
            T.copy(A[1, 2:6, 2, :], x)
            T.copy(x, B)

    a, b = np.arange(192, dtype=np.int32).reshape(2, 8, 3, 4), np.zeros((4, 4), np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, a[1, 2:6, 2, :])


def test_copy_reads_zero_and_drops_stores_outside():
    @T.prim_func
    def main(A: T.Tensor((5, 5), "int32"), B: T.Tensor((6, 3), "int32")):
        with T.Kernel(2, 2, threads=4) as (bx, by):
            x = T.alloc_shared((4, 4), "int32")
            T.copy(A[by * 4, bx * 4], x)
            for i, j in T.Parallel(4, 4):
                x[i, j] = x[i, j] + 1
            T.copy(x, B[by * 4, bx * 4])

    a, b = np.arange(25, dtype=np.int32).reshape(5, 5), np.full((6, 3), -1, np.int32)
    run(main, [a, b])
    padded = np.zeros((8, 8), np.int32)
    padded[:5, :5] = a
    np.testing.assert_array_equal(b, padded[:6, :3] + 1)


def test_safe_value_replaces_zero_outside():
    @T.prim_func
    def main(A: T.Tensor((5,), "float16"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=4):
            T.annotate_safe_value({A: -2.5})
            x = T.alloc_shared((8,), "float16")
            T.copy(A[0:8], x)
            for i in T.Parallel(8):
                B[i] = x[i] + A[i - 4]

    a, b = np.arange(5).astype(np.float16), np.zeros(8, np.float32)
    run(main, [a, b])
    padded = np.concatenate([np.full(4, -2.5), np.arange(5), np.full(3, -2.5)])
    np.testing.assert_array_equal(b, padded[4:] + padded[:8])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint4", "bool"])
def test_fill_and_clear(dtype):
    value = True if dtype == "bool" else 3

    @T.prim_func
    def main(B: T.Tensor((4, 8), dtype)):
        with T.Kernel(1, threads=4):
            x = T.alloc_fragment((4, 8), dtype)
            T.clear(x)
            T.fill(x[1:3, 0:4], value)
            T.copy(x, B)

    stored = np.full((4, 4), 0xFF, np.uint8) if dtype == "uint4" else np.ones((4, 8), T.dtype(dtype).as_numpy())
    run(main, [stored])
    got = np.stack([stored & 15, stored >> 4], -1).reshape(4, 8) if dtype == "uint4" else stored.astype(np.float32)
    expected = np.zeros((4, 8))
    expected[1:3, :4] = value
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("clear", [False, True])
def test_gemm(transpose_a, transpose_b, clear):
    m, n, k = 8, 6, 4
    shape_a, shape_b = ((k, m) if transpose_a else (m, k)), ((n, k) if transpose_b else (k, n))

    @T.prim_func
    def main(A: T.Tensor(shape_a, "float16"), B: T.Tensor(shape_b, "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared(shape_a, "float16")
            b = T.alloc_shared(shape_b, "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 2)
            T.gemm(a, b, c, transpose_A=transpose_a, transpose_B=transpose_b, clear_accum=clear)
            T.copy(c, C)

    a, b = RNG.standard_normal(shape_a).astype(np.float16), RNG.standard_normal(shape_b).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    run(main, [a, b, c])
    left, right = (a.T if transpose_a else a).astype(np.float64), (b.T if transpose_b else b).astype(np.float64)
    np.testing.assert_allclose(c, left @ right + (0 if clear else 2), rtol=1e-6)


def test_gemm_of_integers_wraps():
    @T.prim_func
    def main(A: T.Tensor((4, 16), "int8"), B: T.Tensor((16, 4), "int8"), C: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((4, 16), "int8")
            b = T.alloc_shared((16, 4), "int8")
            c = T.alloc_fragment((4, 4), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 2**31 - 1)
            T.gemm(a, b, c)
            T.copy(c, C)

    a, b = np.full((4, 16), 127, np.int8), np.full((16, 4), 127, np.int8)
    c = np.zeros((4, 4), np.int32)
    run(main, [a, b, c])
    assert (c == np.int64(2**31 - 1 + 16 * 127 * 127 - 2**32)).all()


REDUCTIONS = {
    "reduce_sum": lambda x: x.sum(1),
    "reduce_max": lambda x: x.max(1),
    "reduce_min": lambda x: x.min(1),
    "reduce_prod": lambda x: x.prod(1),
    "reduce_abssum": lambda x: np.abs(x).sum(1),
    "reduce_absmax": lambda x: np.abs(x).max(1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_reductions(name, dtype):
    main = unary_tile((4, 8), (4,), dtype, lambda x, y: getattr(T, name)(x, y, dim=1))
    a = RNG.integers(-3, 4, (4, 8)).astype(dtype)
    a[a == 0] = 1
    b = np.zeros(4, dtype)
    run(main, [a, b])
    np.testing.assert_array_equal(b, REDUCTIONS[name](a.astype(np.float64)).astype(dtype))


@pytest.mark.parametrize(
    ("name", "ufunc"), [("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor)]
)
def test_bit_reductions(name, ufunc):
    main = unary_tile((4, 8), (8,), "int32", lambda x, y: getattr(T, f"reduce_{name}")(x, y, dim=0))
    a, b = RNG.integers(0, 100, (4, 8)).astype(np.int32), np.zeros(8, np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, ufunc.reduce(a, axis=0))


def test_reduction_keeps_the_old_content_once():
    def body(x, y):
        T.fill(y, 10)
        T.reduce_sum(x, y, dim=1, clear=False)

    main = unary_tile((4, 8), (4,), "float32", body)
    a, b = np.ones((4, 8), np.float32), np.zeros(4, np.float32)
    run(main, [a, b])
    assert (b == 18).all()


def test_maximum_skips_nan_unless_asked():
    a = np.asarray([[1, np.nan, 3]], np.float32)
    for propagate, expected in ((False, 3), (True, np.nan)):
        main = unary_tile((1, 3), (1,), "float32", lambda x, y, p=propagate: T.reduce_max(x, y, dim=1, nan_propagate=p))
        b = np.zeros(1, np.float32)
        run(main, [a, b])
        np.testing.assert_array_equal(b, [expected])


def test_custom_reduction_computes_in_the_result_type():
    main = unary_tile((4, 8), (4,), "int8", lambda x, y: T.reduce(x, y, lambda a, b: a * b, dim=1, identity=1))
    a, b = RNG.integers(-5, 6, (4, 8)).astype(np.int8), np.zeros(4, np.int8)
    run(main, [a, b])
    np.testing.assert_array_equal(b, a.astype(np.int64).prod(1).astype(np.int8))


@pytest.mark.parametrize("dtype", ["uint64", "int4"])
def test_reductions_of_unusual_integers(dtype):
    @T.prim_func
    def main(A: T.Tensor((2, 4), "int64"), B: T.Tensor((2,), "int64"), C: T.Tensor((2,), "int64")):
        with T.Kernel(1, threads=4):
            x = T.alloc_shared((2, 4), dtype)
            y = T.alloc_shared((2,), dtype)
            T.copy(A, x)
            T.reduce_max(x, y, dim=1)
            T.copy(y, B)
            T.reduce_bitand(x, y, dim=1)
            T.copy(y, C)

    a = np.asarray([[-1, 3, 5, 7], [-8, -3, -2, -1]])
    b, c = np.zeros(2, np.int64), np.zeros(2, np.int64)
    run(main, [a, b, c])
    assert b.tolist() == ([-1, -1] if dtype == "uint64" else [7, -1])
    assert c.tolist() == [1, -8]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "ufunc"), [("cumsum", np.add), ("cummax", np.maximum), ("cumprod", np.multiply)])
def test_scans(name, ufunc, reverse):
    main = unary_tile((4, 6), (4, 6), "float32", lambda x, y: getattr(T, name)(x, y, dim=1, reverse=reverse))
    a, b = RNG.integers(1, 4, (4, 6)).astype(np.float32), np.zeros((4, 6), np.float32)
    run(main, [a, b])
    expected = ufunc.accumulate(a[:, ::-1], axis=1)[:, ::-1] if reverse else ufunc.accumulate(a, axis=1)
    np.testing.assert_array_equal(b, expected)


def test_tile_atomics_add_up_over_blocks():
    @T.prim_func
    def main(A: T.Tensor((6, 8), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "float32")):
        with T.Kernel(6, threads=8) as bx:
            x = T.alloc_shared((8,), "float32")
            T.copy(A[bx, 0:8], x)
            T.atomic_add(B[0:8], x)
            T.atomic_max(C[0:8], x)

    a = RNG.integers(-9, 9, (6, 8)).astype(np.float32)
    b, c = np.ones(8, np.float32), np.zeros(8, np.float32)
    run(main, [a, b, c])
    np.testing.assert_array_equal(b, a.sum(0) + 1)
    np.testing.assert_array_equal(c, np.maximum(a.max(0), 0))


def test_print_and_device_assert():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=4) as bx:
            x = T.alloc_shared((4,), "int32")
            T.copy(A, x)
            T.print(x, msg="x")
            T.print(bx + 5)
            for i in T.Parallel(4):
                if i == 2:
                    T.print(x[i] * 10)
                T.device_assert(x[i] < 3, "x is small")

    lines = []
    run(main, [np.arange(3).repeat(2)[:4].astype(np.int32)], output=lines.append)
    assert "block 0: x: [0 0 1 1]" in lines
    assert "block 1: 6" in lines
    assert "block 1, iteration 2: 10" in lines
    with pytest.raises(InterpreterError, match="device assertion failed in iteration 3: x is small"):
        run(main, [np.arange(4, dtype=np.int32)], output=lines.append)


def test_vector_elements_move_through_operators():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32x4"), B: T.Tensor((6,), "float32x4")):
        with T.Kernel(1, threads=4):
            x = T.alloc_shared((6,), "float32x4")
            T.copy(A[0:6], x)
            for i in T.Parallel(6):
                B[i] = x[i] + x[i]

    a, b = RNG.standard_normal((4, 4)).astype(np.float32), np.ones((6, 4), np.float32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, np.concatenate([a * 2, np.zeros((2, 4))]))


def test_float8_copies_saturate():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float8_e4m3fn")):
        with T.Kernel(1, threads=4):
            T.copy(A, B)

    b = np.zeros(4, ml_dtypes.float8_e4m3fn)
    run(main, [np.asarray([1000, -1000, 0.3, 2], np.float32), b])
    np.testing.assert_array_equal(b.astype(np.float32), [448, -448, 0.3125, 2])


def test_safe_value_ends_with_its_kernel():
    @T.prim_func
    def main(A: T.Tensor((2,), "int32"), B: T.Tensor((2, 4), "int32")):
        with T.Kernel(1, threads=4):
            T.annotate_safe_value({A: 9})
            T.copy(A[0:4], B[0, 0:4])
        with T.Kernel(1, threads=4):
            T.copy(A[0:4], B[1, 0:4])

    b = np.zeros((2, 4), np.int32)
    run(main, [np.ones(2, np.int32), b])
    assert b.tolist() == [[1, 1, 9, 9], [1, 1, 0, 0]]


def test_hints_change_nothing():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=4) as bx:
            T.use_swizzle(panel_size=2)
            x = T.alloc_shared((2,), "int32")
            T.copy(A[bx * 2], x)
            T.copy(x, B[bx * 2])

    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(a, b)
