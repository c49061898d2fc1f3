"""Reductions and scans (surface.md a.3, b.4, c.8)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints, positive


def reduction(names, operator, reference, data=floats, dtype="float32", shape=(4, 8), dim=1, **keywords):
    """A case that reduces a tile along `dim`, over a result that held 3."""
    kept = tuple(1 if d == dim % len(shape) else n for d, n in enumerate(shape))
    result_shape = tuple(n for d, n in enumerate(shape) if d != dim % len(shape))

    def program():
        @T.prim_func
        def main(A: T.Tensor(shape, dtype), B: T.Tensor(result_shape, dtype)):
            with T.Kernel(1, threads=8):
                tile = T.alloc_fragment(shape, dtype)
                out = T.alloc_fragment(result_shape, dtype)
                T.copy(A, tile)
                T.fill(out, 3)
                operator(tile, out, dim=dim, **keywords)
                T.copy(out, B)

        element = T.dtype(dtype).as_numpy()
        a = data(*shape, dtype=element)
        parts = [a] if keywords.get("clear", True) else [a, np.full(kept, 3, element)]
        wide = np.concatenate(parts, axis=dim).astype(np.int64 if element.kind in "iu" else np.float64)
        return Program(main, [a], [reference(wide, dim)], rtol=1e-5, atol=1e-5)

    case(*names, title=names[0])(program)


reduction(["T.reduce_sum"], T.reduce_sum, np.sum)
reduction(["T.reduce_max"], T.reduce_max, np.max)
reduction(["T.reduce_min"], T.reduce_min, np.min)
reduction(["T.reduce_prod"], T.reduce_prod, np.prod)
reduction(["T.reduce_product"], T.reduce_product, np.prod)
reduction(["T.reduce_mul"], T.reduce_mul, np.prod)
reduction(["T.reduce_abssum"], T.reduce_abssum, lambda a, d: np.abs(a).sum(d))
reduction(["T.reduce_absmax"], T.reduce_absmax, lambda a, d: np.abs(a).max(d))
reduction(["T.reduce_bitand"], T.reduce_bitand, np.bitwise_and.reduce, ints, "int32")
reduction(["T.reduce_bitor"], T.reduce_bitor, np.bitwise_or.reduce, ints, "int32")
reduction(["T.reduce_bitxor"], T.reduce_bitxor, np.bitwise_xor.reduce, ints, "int32")
for _dim in (0, 1, 2, -2):
    reduction(["T.reduce_*(dim=)"], T.reduce_sum, np.sum, shape=(3, 4, 5), dim=_dim)
for _name, _reference in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
    reduction(["T.reduce_*(clear=)"], getattr(T, f"reduce_{_name}"), _reference, clear=False)
reduction(["T.reduce_*(batch=)"], T.reduce_sum, np.sum, batch=2)
reduction(["T.reduce (by name)", "T.reduce"], lambda x, y, dim: T.reduce(x, y, "sum", dim), np.sum)
reduction(["T.reduce (product)"], lambda x, y, dim: T.reduce(x, y, "product", dim), np.prod)
reduction(["T.reduce_* (integers)"], T.reduce_max, np.max, ints, "int8")
reduction(["T.reduce_* (float16)"], T.reduce_max, np.max, dtype="float16")
reduction(
    ["T.reduce (custom)"],
    lambda x, y, dim: T.reduce(x, y, lambda a, b: a * b, dim, identity=1),
    np.prod,
)


@case("T.reduce_*(nan_propagate=)")
def nan_in_reductions():
    @T.prim_func
    def main(A: T.Tensor((2, 8), "float32"), B: T.Tensor((3, 2), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((2, 8), "float32")
            out = T.alloc_fragment((2,), "float32")
            T.copy(A, tile)
            T.reduce_max(tile, out, dim=1, nan_propagate=True)
            T.copy(out, B[0, :])
            T.reduce_max(tile, out, dim=1)
            T.copy(out, B[1, :])
            T.reduce_min(tile, out, dim=1)
            T.copy(out, B[2, :])

    a = floats(2, 8)
    a[0, 3] = np.nan
    want = np.stack([a.max(1), np.fmax.reduce(a, 1), np.fmin.reduce(a, 1)])
    return Program(main, [a], [want])


@case("T.reduce_* (positional dim)", "T.reduce_* (kept dimension)", "T.reduce_* (shared memory)")
def reduce_in_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 1), "float32"), C: T.Tensor((1, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            rows = T.alloc_shared((4, 1), "float32")
            columns = T.alloc_fragment((1, 8), "float32")
            T.copy(A, tile)
            T.reduce_sum(tile, rows, 1)
            T.reduce_min(tile, columns, 0)
            T.copy(rows, B)
            T.copy(columns, C)

    a = floats(4, 8)
    return Program(main, [a], [a.sum(1, keepdims=True), a.min(0, keepdims=True)], rtol=1e-5, atol=1e-5)


@case("T.reduce_*(axis=)")
def reduce_axis():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((4, 8), "int32")
            out = T.alloc_fragment((8,), "int32")
            T.copy(A, tile)
            T.reduce_sum(tile, out, axis=0)
            T.copy(out, B)

    a = ints(4, 8)
    return Program(main, [a], [a.sum(0)])


# -- scans ----------------------------------------------------------------------------------------------------


def scan(names, operator, reference, data=floats, reverse=False, dim=0):
    def program():
        @T.prim_func
        def main(A: T.Tensor((6, 8), "float32"), B: T.Tensor((6, 8), "float32"), C: T.Tensor((6, 8), "float32")):
            with T.Kernel(1, threads=8):
                tile = T.alloc_shared((6, 8), "float32")
                out = T.alloc_fragment((6, 8), "float32")
                T.copy(A, tile)
                operator(tile, out, dim=dim, reverse=reverse)
                T.copy(out, B)
                operator(tile, dim=dim, reverse=reverse)
                T.copy(tile, C)

        a = data(6, 8)
        forward = np.flip(a, dim) if reverse else a
        want = reference(forward.astype(np.float64), dim)
        want = np.flip(want, dim) if reverse else want
        return Program(main, [a], [want, want], rtol=1e-5, atol=1e-5)

    case(*names, title=f"{names[0]}, dim {dim}")(program)


for _dim in (0, 1):
    scan(["T.cumsum", "T.cumsum(dim=)"], T.cumsum, np.cumsum, dim=_dim)
scan(["T.cumsum(reverse=)"], T.cumsum, np.cumsum, reverse=True)
scan(["T.cumprod"], T.cumprod, np.cumprod, positive)
scan(["T.cummax"], T.cummax, np.maximum.accumulate)
scan(["T.cummin"], T.cummin, np.minimum.accumulate)
