"""`T.gemm`: transposes, scopes of operands, types, keywords (surface.md a.3, b.4, c.5 to c.7)."""

import ml_dtypes
import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints

M, N, K = 16, 24, 40


def product(
    names, a_dtype="float16", c_dtype="float32", scopes=("shared", "shared"), transposes=(False, False), **keywords
):
    """A case that multiplies tiles: `scopes` and `transposes` are those of A and B."""

    def program():
        ta, tb = transposes
        a_shape, b_shape = (K, M) if ta else (M, K), (N, K) if tb else (K, N)

        @T.prim_func
        def main(A: T.Tensor(a_shape, a_dtype), B: T.Tensor(b_shape, a_dtype), C: T.Tensor((M, N), c_dtype)):
            with T.Kernel(1, threads=128):
                a = T.alloc_buffer(a_shape, a_dtype, scope=scopes[0])
                b = T.alloc_buffer(b_shape, a_dtype, scope=scopes[1])
                c = T.alloc_fragment((M, N), c_dtype)
                T.copy(A, a)
                T.copy(B, b)
                T.fill(c, 2)
                T.gemm(a, b, c, ta, tb, **keywords)
                T.copy(c, C)

        element = T.dtype(a_dtype).as_numpy()
        make = ints if element.kind in "iu" else floats
        x, y = make(*a_shape, dtype=element), make(*b_shape, dtype=element, seed=1)
        wide = [v.astype(np.float64) for v in (x, y)]
        want = (wide[0].T if ta else wide[0]) @ (wide[1].T if tb else wide[1])
        want = want if keywords.get("clear_accum") is True else want + 2
        exact = T.dtype(c_dtype).is_integer
        tolerance = 0 if exact else {"float16": 2e-2, "float64": 1e-12}.get(c_dtype, 1e-4)
        return Program(main, [x, y], [want], rtol=tolerance, atol=tolerance)

    case(*names, title=names[0])(program)


product(["T.gemm", "T.gemm (ss)"])
product(["T.gemm (rs)"], scopes=("local.fragment", "shared"))
product(["T.gemm (sr)"], scopes=("shared", "local.fragment"))
product(["T.gemm (rr)"], scopes=("local.fragment", "local.fragment"))
product(["T.gemm(transpose_A=)", "T.gemm (positional transposes)"], transposes=(True, False))
product(["T.gemm(transpose_B=)"], transposes=(False, True))
product(["T.gemm(transpose_A=, transpose_B=)"], transposes=(True, True))
product(["T.gemm(clear_accum=)"], clear_accum=True)
product(["T.gemm(k_pack=)"], k_pack=2)
product(["T.gemm(wg_wait=)"], wg_wait=-1)
for _policy in T.GemmWarpPolicy:
    product([f"T.GemmWarpPolicy.{_policy.name}", "T.GemmWarpPolicy", "T.gemm(policy=)"], policy=_policy)
product(["T.gemm (float16 into float16)"], c_dtype="float16")
product(["T.gemm (bfloat16)"], a_dtype="bfloat16")
product(["T.gemm (float32)"], a_dtype="float32")
product(["T.gemm (tfloat32)"], a_dtype="tfloat32")
product(["T.gemm (float64)"], a_dtype="float64", c_dtype="float64")
product(["T.gemm (int8 into int32)"], a_dtype="int8", c_dtype="int32")
product(["T.gemm (uint8 into int32)"], a_dtype="uint8", c_dtype="int32")
product(["T.gemm (float8_e4m3)"], a_dtype="float8_e4m3")
product(["T.gemm (float8_e5m2)"], a_dtype="float8_e5m2")


@case("T.gemm (clear_accum of the block)")
def run_time_clear():
    @T.prim_func
    def main(A: T.Tensor((M, 2 * K), "float16"), B: T.Tensor((2 * K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((M, K), "float16")
            b = T.alloc_shared((K, N), "float16")
            c = T.alloc_fragment((M, N), "float32")
            for k in T.serial(2):
                T.copy(A[0, k * K], a)
                T.copy(B[k * K, 0], b)
                T.gemm(a, b, c, clear_accum=(k == 0))
            T.copy(c, C)

    a, b = floats(M, 2 * K, dtype=np.float16), floats(2 * K, N, dtype=np.float16, seed=1)
    return Program(main, [a, b], [a.astype(np.float64) @ b.astype(np.float64)], rtol=1e-4, atol=1e-4)


@case("T.gemm (slices, leading extents of 1)", "T.gemm (C in shared memory)")
def sliced_operands():
    @T.prim_func
    def main(A: T.Tensor((2, M, K), "bfloat16"), B: T.Tensor((K, 2 * N), "bfloat16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((2, M, K), "bfloat16")
            b = T.alloc_shared((K, 2 * N), "bfloat16")
            c = T.alloc_shared((1, M, N), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a[1, :, :], b[:, N : 2 * N], c)
            T.copy(c, C)

    a, b = floats(2, M, K, dtype=ml_dtypes.bfloat16), floats(K, 2 * N, dtype=ml_dtypes.bfloat16, seed=1)
    want = a[1].astype(np.float64) @ b[:, N:].astype(np.float64)
    return Program(main, [a, b], [want], rtol=1e-4, atol=1e-4)
