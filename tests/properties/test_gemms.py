"""Random matrix products: types, transposes, places of the operands, tiles of matrices of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from everywhere import agree, random_values, to_storage
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T

SCOPES = ("shared", "local.fragment")
# (A, B, C): float operands of different types meet in C's type
TYPES = (
    ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float16", "float16", "float16"),
    ("float16", "float32", "float32"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("uint8", "int8", "int32"),
    ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    ("float8_e5m2", "float8_e4m3fn", "float32"),
    ("int4", "int4", "int32"),
)


def tolerance(dtype: str) -> float:
    return {"int32": 0.0, "float64": 1e-11, "float32": 2e-4, "float16": 5e-2}[dtype]


def product(a: Any, b: Any, ta: bool, tb: bool) -> Any:
    wide = [x.astype(np.int64 if x.dtype.kind in "iu" else np.float64) for x in (a, b)]
    return (wide[0].T if ta else wide[0]) @ (wide[1].T if tb else wide[1])


@st.composite
def tiles(draw: Any) -> Any:
    even = st.integers(1, 24).map(lambda n: 2 * n)  # packed types fill their bytes
    m, n, k = draw(even), draw(even), draw(even)
    kinds = draw(st.sampled_from(TYPES))
    flags = tuple(draw(st.booleans()) for _ in range(3))
    scopes = tuple(draw(st.sampled_from(SCOPES)) for _ in range(3))
    return m, n, k, kinds, flags, scopes, draw(st.sampled_from(list(T.GemmWarpPolicy))), draw(st.integers(0, 99))


@given(tiles())
def test_one_tile(program):
    m, n, k, (a_type, b_type, c_type), (ta, tb, clear), scopes, policy, seed = program
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(A: T.Tensor(a_shape, a_type), B: T.Tensor(b_shape, b_type), C: T.Tensor((m, n), c_type)):
        with T.Kernel(1, threads=128):
            a = T.alloc_buffer(a_shape, a_type, scope=scopes[0])
            b = T.alloc_buffer(b_shape, b_type, scope=scopes[1])
            c = T.alloc_buffer((m, n), c_type, scope=scopes[2])
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a, b, c, ta, tb, policy=policy, clear_accum=clear)
            T.copy(c, C)

    a, b = random_values(a_shape, a_type, seed, small=True), random_values(b_shape, b_type, seed + 1, small=True)
    c = random_values((m, n), c_type, seed + 2, small=True)
    want = product(a, b, ta, tb) + (0 if clear else c.astype(np.int64 if c.dtype.kind == "i" else np.float64))
    bound = tolerance(c_type)
    scale = 64 * k if bound else 0  # the largest product that a sum may lose digits of
    agree(
        main, [to_storage(a, a_type), to_storage(b, b_type), c], [None, None, want], rtol=bound, atol=bound * scale / 32
    )


@st.composite
def matrices(draw: Any) -> Any:
    sizes = tuple(draw(st.integers(1, 90)) for _ in range(3))
    blocks = tuple(draw(st.sampled_from([16, 32, 48])) for _ in range(3))
    kinds = draw(st.sampled_from(TYPES[:-1]))
    flags = tuple(draw(st.booleans()) for _ in range(3))
    return sizes, blocks, kinds, flags, draw(st.integers(0, 3)), draw(st.integers(0, 99))


@given(matrices())
def test_tiles_of_matrices(program):
    """Shapes that are no multiples of the tiles, static or dynamic, through a pipeline."""
    (M, N, K), (bm, bn, bk), (a_type, b_type, c_type), (ta, tb, dynamic), stages, seed = program
    m, n, k = (T.dynamic("m"), T.dynamic("n"), T.dynamic("k")) if dynamic else (M, N, K)
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(A: T.Tensor(a_shape, a_type), B: T.Tensor(b_shape, b_type), C: T.Tensor((m, n), c_type)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), a_type)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), b_type)
            c = T.alloc_fragment((bm, bn), c_type)
            T.use_swizzle(4)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[step * bk, by * bm] if ta else A[by * bm, step * bk], a)
                T.copy(B[bx * bn, step * bk] if tb else B[step * bk, bx * bn], b)
                T.gemm(a, b, c, ta, tb)
            T.copy(c, C[by * bm, bx * bn])

    a = random_values((K, M) if ta else (M, K), a_type, seed, small=True)
    b = random_values((N, K) if tb else (K, N), b_type, seed + 1, small=True)
    want = product(a, b, ta, tb)
    bound = tolerance(c_type)
    agree(
        main, [a, b, np.zeros((M, N), T.dtype(c_type).as_numpy())], [None, None, want], rtol=bound, atol=bound * 2 * K
    )
