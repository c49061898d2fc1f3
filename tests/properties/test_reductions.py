"""Random reductions and scans: kinds, dimensions, types, places, `clear`."""

from __future__ import annotations

from typing import Any

import numpy as np
from everywhere import agree, is_float, limits, numpy_type, random_values
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T

SCOPES = ("shared.dyn", "local.fragment")
TYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int8", "uint8", "int64")
BITWISE = ("bitand", "bitor", "bitxor")
KINDS = ("sum", "max", "min", "prod", "abssum", "absmax", *BITWISE)


def wide(values: Any, dtype: str) -> Any:
    return values.astype(np.float64 if is_float(dtype) else np.int64)


def narrowed(values: Any, dtype: str) -> Any:
    """A result in its type: rounded once, or wrapped."""
    if is_float(dtype):
        return (
            np.asarray(values).astype(np.float32).astype(numpy_type(dtype))
            if dtype != "float64"
            else np.asarray(values)
        )
    low, high = limits(dtype)
    wrapped = [(int(x) - low) % (high - low + 1) + low for x in np.ravel(values)]
    return np.array(wrapped, numpy_type(dtype)).reshape(np.shape(values))


def tolerance(kind: str, dtype: str) -> float:
    """Sums and products of floats may be formed in any order; the rest is exact."""
    if kind not in ("sum", "prod", "abssum") or not is_float(dtype):
        return 0.0
    return {"float64": 1e-12, "float32": 1e-4, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]


def fold(kind: str, values: Any, axis: int) -> Any:
    functions: dict[str, Any] = {
        "sum": np.sum,
        "max": np.fmax.reduce,
        "min": np.fmin.reduce,
        "prod": np.prod,
        "abssum": lambda v, axis: np.abs(v).sum(axis=axis),
        "absmax": lambda v, axis: np.abs(v).max(axis=axis),
        "bitand": np.bitwise_and.reduce,
        "bitor": np.bitwise_or.reduce,
        "bitxor": np.bitwise_xor.reduce,
    }
    return functions[kind](values, axis=axis)


@st.composite
def reductions(draw: Any) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 17), min_size=1, max_size=3)))
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from([t for t in TYPES if not (kind in BITWISE and is_float(t))]))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    scopes = draw(st.sampled_from(SCOPES)), draw(st.sampled_from(SCOPES))
    return shape, kind, dtype, dim, draw(st.booleans()), draw(st.booleans()), scopes, draw(st.integers(0, 99))


@given(st.lists(reductions(), min_size=2, max_size=2))
def test_reductions(pair):
    """Two reductions in one kernel."""
    functions, arguments, want, tolerances = [], [], [], []
    for shape, kind, dtype, dim, clear, kept, scopes, seed in pair:
        axis = dim % len(shape)
        dropped = tuple(n for d, n in enumerate(shape) if d != axis) or (1,)
        result = tuple(1 if d == axis else n for d, n in enumerate(shape)) if kept else dropped
        values, before = (
            random_values(shape, dtype, seed, small=True),
            random_values(result, dtype, seed + 1, small=True),
        )
        if kind == "prod":  # of magnitudes near one
            values = np.sign(values).astype(values.dtype) if not is_float(dtype) else values
            values = (np.sign(wide(values, dtype)) * 1.25).astype(values.dtype) if is_float(dtype) else values
        parts = [wide(values, dtype)]
        if not clear:
            parts.append(wide(before, dtype).reshape([1 if d == axis else n for d, n in enumerate(shape)]))
        if kind.startswith("abs"):  # what is there already is not made positive
            parts[0] = np.abs(parts[0])
        plain = {"abssum": "sum", "absmax": "max"}.get(kind, kind)
        folded = fold(plain, np.concatenate(parts, axis=axis), axis)
        if kind == "absmax" and clear:
            folded = np.maximum(folded, 0)
        functions.append((shape, result, dtype, scopes, kind, dim, clear))
        arguments += [values, before]
        want += [None, narrowed(folded, dtype).reshape(result)]
        tolerances.append(tolerance(kind, dtype))

    (s0, r0, t0, p0, k0, d0, c0), (s1, r1, t1, p1, k1, d1, c1) = functions

    @T.macro
    def reduction(source, target, shape, result, dtype, scopes, kind, dim, clear):
        tile = T.alloc_buffer(shape, dtype, scope=scopes[0])
        out = T.alloc_buffer(result, dtype, scope=scopes[1])
        T.copy(source, tile)
        T.copy(target, out)
        T.reduce(tile, out, kind, dim, clear)
        T.copy(out, target)

    @T.prim_func
    def main(A: T.Tensor(s0, t0), B: T.Tensor(r0, t0), C: T.Tensor(s1, t1), D: T.Tensor(r1, t1)):
        with T.Kernel(1, threads=32):
            reduction(A, B, s0, r0, t0, p0, k0, d0, c0)
            reduction(C, D, s1, r1, t1, p1, k1, d1, c1)

    agree(main, arguments, want, rtol=max(tolerances), atol=max(tolerances))


@given(st.integers(1, 40), st.sampled_from(["max", "min"]), st.booleans(), st.integers(0, 999))
def test_nan(columns, kind, propagate, seed):
    """max and min leave NaN out, unless they propagate it."""

    @T.prim_func
    def main(A: T.Tensor((4, columns), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((4, columns), "float32")
            out = T.alloc_fragment((4,), "float32")
            T.copy(A, tile)
            T.reduce(tile, out, kind, 1, nan_propagate=propagate)
            T.copy(out, B)

    a = random_values((4, columns), "float32", seed)
    a[np.random.default_rng(seed).random(a.shape) < 0.2] = np.nan
    a[:, 0] = 1.5
    function = {("max", False): np.fmax, ("max", True): np.maximum, ("min", False): np.fmin, ("min", True): np.minimum}
    agree(main, [a, np.zeros(4, np.float32)], [None, function[kind, propagate].reduce(a, axis=1)])


@st.composite
def scans(draw: Any) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 17), min_size=1, max_size=3)))
    return (
        shape,
        draw(st.sampled_from(["sum", "max", "min"])),
        draw(st.sampled_from(TYPES)),
        draw(st.integers(-len(shape), len(shape) - 1)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(SCOPES)),
        draw(st.integers(0, 99)),
    )


@given(scans())
def test_scans(program):
    shape, kind, dtype, dim, reverse, in_place, scope, seed = program
    scan = {"sum": T.cumsum, "max": T.cummax, "min": T.cummin}[kind]

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_buffer(shape, dtype, scope=scope)
            T.copy(A, tile)
            if in_place:
                scan(tile, dim=dim, reverse=reverse)
                T.copy(tile, B)
            else:
                out = T.alloc_fragment(shape, dtype)
                scan(tile, out, dim, reverse)
                T.copy(out, B)

    a = random_values(shape, dtype, seed, small=True)
    function = {"sum": np.add, "max": np.fmax, "min": np.fmin}[kind]
    values = np.flip(wide(a, dtype), dim) if reverse else wide(a, dtype)
    scanned = function.accumulate(values, axis=dim)
    want = narrowed(np.flip(scanned, dim) if reverse else scanned, dtype)
    bound = tolerance(kind, dtype)
    agree(main, [a, np.zeros_like(a)], [None, want], rtol=bound, atol=bound * 8)
