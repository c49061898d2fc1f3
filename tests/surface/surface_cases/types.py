"""Element types: each one in memory, copied, converted; packed storage; vectors; other spellings (c.25)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints
from tilelang.interpreter import numerics
from tilelang.ir import dtypes


def stored(dtype, count=16):
    """Values of a type as a call passes them, and as an unpacked array of float64."""
    kind = T.dtype(dtype)
    if kind.bits < 8:
        codes = np.random.default_rng(kind.bits).integers(1, 1 << kind.bits, (2, count)).astype(np.uint8)
        values = numerics.from_codes(codes, kind)
        return numerics.pack(codes, kind.bits), values.astype(np.float64)
    element = kind.storage.as_numpy()
    if kind.kind == "bool":
        values = ints(2, count) > 0
    elif kind == "float8_e8m0fnu":
        values = (2.0 ** ints(2, count, high=4)).astype(element)
    elif kind.is_float:
        values = floats(2, count).astype(element)
    else:
        values = ints(2, count, dtype=element, high=100)
    return values, values.astype(np.float64)


def element_type(dtype, names):
    """A case that copies a tensor of the type, and converts it to float32 and back."""

    def program():
        kind = T.dtype(dtype)

        @T.prim_func
        def main(A: T.Tensor((2, 16), kind), C: T.Tensor((2, 16), "float32"), B: T.Tensor((2, 16), kind)):
            with T.Kernel(1, threads=16):
                tile = T.alloc_shared((2, 16), kind)
                wide = T.alloc_fragment((2, 16), "float32")
                T.copy(A, tile)
                for i, j in T.Parallel(2, 16):
                    wide[i, j] = T.cast(tile[i, j], "float32")
                T.copy(wide, C)
                T.copy(wide, B)

        a, values = stored(dtype)
        return Program(main, [a, np.zeros((2, 16), np.float32), np.zeros_like(a)], [values, a])

    case(*names, title=names[0])(program)


_OTHER = {n: [a for a, c in dtypes.aliases().items() if c == n] for n in dtypes.scalar_names()}
for _dtype in dtypes.scalar_names():
    element_type(_dtype, [f"T.{_dtype}"])
for _alias in dtypes.aliases():
    element_type(_alias, [f"T.{_alias}"])


def arithmetic(dtype):
    """A case that adds and multiplies in the type."""

    def program():
        @T.prim_func
        def main(A: T.Tensor((16,), dtype), B: T.Tensor((16,), dtype), C: T.Tensor((16,), dtype)):
            with T.Kernel(1, threads=16):
                for i in T.Parallel(16):
                    C[i] = A[i] * B[i] + A[i]

        element = T.dtype(dtype).as_numpy()
        make = ints if element.kind in "iu" else floats
        a, b = make(16, dtype=element), make(16, dtype=element, seed=1)
        if element.kind in "iu":
            return Program(main, [a, b], [(a * b + a).astype(element)])
        exact = a.astype(np.float64) * b.astype(np.float64) + a.astype(np.float64)
        step = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-51}[dtype]
        return Program(main, [a, b], [exact], rtol=2 * step, atol=4 * step)  # the sum may cancel

    case(f"arithmetic in {dtype}", title=f"arithmetic {dtype}")(program)


for _bits in (8, 16, 32, 64):
    arithmetic(f"int{_bits}")
    arithmetic(f"uint{_bits}")
for _dtype in ("float16", "bfloat16", "float32", "float64"):
    arithmetic(_dtype)


@case("T.float32x4, T.float16x2 (vector types)")
def vector_types():
    assert T.float32x4.lanes == 4
    assert T.float16x2.scalar == "float16"

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=1):
            tile = T.alloc_shared((8,), "float32")
            T.copy(A, tile)
            wide = T.view(tile, (2,), T.float32x4)
            for i in T.serial(2):
                wide[i] = wide[i] * wide[1 - i] + 1
            T.copy(tile, B)

    a = floats(8)
    first = a[:4] * a[4:] + np.float32(1)
    return Program(main, [a], [np.concatenate([first, a[4:] * first + np.float32(1)])], rtol=1e-6, atol=1e-6)


@case("T.dtype", "T.dtypes", "T.float32(x)", "dtype.as_torch()")
def dtype_objects():
    import torch

    assert T.dtype("float16") is T.float16
    assert T.dtypes.dtype_of(torch.bfloat16) == T.bfloat16
    assert T.dtypes.dtype_of(np.dtype("int8")) == T.int8
    assert T.float16.as_torch() is torch.float16
    assert T.float8_e4m3.as_torch() is torch.float8_e4m3fn

    @T.prim_func
    def main(A: T.Tensor((8,), torch.int32), B: T.Tensor((8,), np.float32)):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.float32(A[i]) + T.float32(0.5)

    a = ints(8)
    return Program(main, [a], [a + 0.5])


@case("tilelang.quantize._tir_packed_to_unsigned_convert", "tilelang.quantize.packed_to_unsigned")
def packed_numbers():
    from tilelang.quantize import _tir_packed_to_unsigned_convert

    @T.prim_func
    def main(A: T.Tensor((8,), "int8"), B: T.Tensor((16,), "float16")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(16):
                B[i] = _tir_packed_to_unsigned_convert("int", 8)(4, A[i // 2], i % 2, dtype="float16")

    a = ints(8, dtype=np.int8, high=120)
    codes = a.view(np.uint8)
    return Program(main, [a], [np.stack([codes & 15, codes >> 4], -1).reshape(16)])
