"""Random expressions over random types: each operation rounds (or wraps) to its type, in every way of running."""

from __future__ import annotations

from typing import Any

import numpy as np
from everywhere import agree, cast, is_float, numpy_type, random_values, to_storage
from hypothesis import example, given
from hypothesis import strategies as st

import tilelang.language as T

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = INTEGERS + FLOATS
Tree = tuple[Any, ...]  # (operation, element type, operands or a constant...)


# -- trees ----------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: Any, dtype: str, inputs: tuple[str, ...], depth: int) -> Tree:
    """An expression of type `dtype` over inputs of the types `inputs`."""
    own = [i for i, kind in enumerate(inputs) if kind == dtype]
    if depth == 0:
        index = draw(st.sampled_from(own) if own else st.integers(0, len(inputs) - 1))
        leaf = ("input", inputs[index], index)
        return leaf if inputs[index] == dtype else ("cast", dtype, leaf)
    below = lambda kind=dtype: draw(trees(kind, inputs, draw(st.integers(0, depth - 1))))  # noqa: E731
    common = ["add", "sub", "mul", "max", "min", "neg", "abs", "select", "cast", "literal"]
    special = ["div", "floor", "small float"] if is_float(dtype) else ["and", "or", "xor", "shl", "shr", "quotient"]
    operation = draw(st.sampled_from(common + special))
    if operation == "cast":
        source = draw(st.sampled_from([t for t in TYPES if t != dtype]))
        return ("cast", dtype, below(source))
    if operation == "small float":
        return (operation, dtype, draw(st.sampled_from(["float8_e4m3fn", "float8_e5m2"])), below())
    if operation == "select":
        kind = draw(st.sampled_from(TYPES))
        test = draw(st.sampled_from(["lt", "le", "eq", "ne", "gt", "ge"]))
        return ("select", dtype, test, below(kind), below(kind), below(), below())
    if operation == "literal":
        value = draw(st.sampled_from([0.5, -1.5, 0.1, 3]) if is_float(dtype) else st.integers(1, 100))
        return ("literal", dtype, draw(st.sampled_from(["add", "mul", "max"])), below(), value)
    if operation in ("shl", "shr"):
        width = numpy_type(dtype).itemsize * 8
        return (operation, dtype, below(), draw(st.integers(0, width - 1)))
    if operation == "quotient":
        return (operation, dtype, draw(st.sampled_from(["//", "%"])), below(), below())
    if operation in ("neg", "abs", "floor"):
        return (operation, dtype, below())
    return (operation, dtype, below(), below())


def _safe(tree: Tree) -> bool:
    """Whether a sum may have this operand: a product there could contract to a fused multiply-add."""
    return not is_float(tree[1]) or not (tree[0] in ("mul", "neg") or (tree[0], tree[2]) == ("literal", "mul"))


def build(tree: Tree, leaves: list[Any]) -> Any:
    """The expression in the language."""
    operation, dtype = tree[:2]
    if operation == "input":
        return leaves[tree[2]]
    if operation == "cast":
        return T.cast(build(tree[2], leaves), dtype)
    if operation == "small float":
        return T.cast(T.cast(build(tree[3], leaves), tree[2]), dtype)
    if operation == "literal":
        x = build(tree[3], leaves)
        if tree[2] == "add":
            return (x if _safe(tree[3]) else T.abs(x)) + tree[4]
        return x * tree[4] if tree[2] == "mul" else T.max(tree[4], x)
    if operation == "select":
        test, a, b, then, otherwise = tree[2], *(build(t, leaves) for t in tree[3:])
        condition = {"lt": a < b, "le": a <= b, "eq": a == b, "ne": a != b, "gt": a > b, "ge": a >= b}[test]
        return T.if_then_else(condition, then, otherwise)
    if operation == "quotient":
        a, b = (build(t, leaves) for t in tree[3:])
        return a // ((b & 7) + 1) if tree[2] == "//" else a % ((b & 7) + 1)
    a = build(tree[2], leaves)
    if operation in ("neg", "abs", "floor"):
        return {"neg": lambda: -a, "abs": lambda: T.abs(a), "floor": lambda: T.floor(a)}[operation]()
    if operation in ("shl", "shr"):
        return a << tree[3] if operation == "shl" else a >> tree[3]
    b = build(tree[3], leaves)
    if operation in ("add", "sub"):
        a, b = (x if _safe(t) else T.abs(x) for x, t in ((a, tree[2]), (b, tree[3])))
    table: dict[str, Any] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "div": lambda: a / b,
        "max": lambda: T.max(a, b),
        "min": lambda: T.min(a, b),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
    }
    return table[operation]()


def value(tree: Tree, leaves: list[Any]) -> Any:
    """The expression in numpy; float16 and bfloat16 by way of float32, rounded after each operation."""
    operation, dtype = tree[:2]
    element = numpy_type(dtype)
    wide = np.dtype(np.float32) if dtype in ("float16", "bfloat16") else element
    if operation == "input":
        return leaves[tree[2]]
    if operation == "cast":
        return cast(value(tree[2], leaves), tree[2][1], dtype)
    if operation == "small float":
        # Straight to eight bits: a float64 must not be rounded to float32 on the way.
        x = value(tree[3], leaves)
        return cast(cast(_odd(x), "float32", tree[2]), tree[2], dtype)
    if operation == "literal":
        x = value(tree[3], leaves)
        other = np.array(tree[4]).astype(element)
        if tree[2] == "add" and not _safe(tree[3]):
            x = np.abs(x)
        function = {"add": np.add, "mul": np.multiply, "max": np.fmax}[tree[2]]
        return function(x.astype(wide), other.astype(wide)).astype(element)
    if operation == "select":
        a, b, then, otherwise = (value(t, leaves) for t in tree[3:])
        names = {
            "lt": "less",
            "le": "less_equal",
            "eq": "equal",
            "ne": "not_equal",
            "gt": "greater",
            "ge": "greater_equal",
        }
        return np.where(getattr(np, names[tree[2]])(a, b), then, otherwise)
    if operation == "quotient":
        a, b = (value(t, leaves) for t in tree[3:])
        return (np.floor_divide if tree[2] == "//" else np.remainder)(a, (b & element.type(7)) + element.type(1))
    a = value(tree[2], leaves).astype(wide)
    if operation in ("neg", "abs", "floor"):
        function = {"neg": np.negative, "abs": np.abs, "floor": np.floor}[operation]
        return function(a).astype(element)
    if operation in ("shl", "shr"):
        return (np.left_shift if operation == "shl" else np.right_shift)(a, element.type(tree[3]))
    b = value(tree[3], leaves).astype(wide)
    if operation in ("add", "sub"):
        a, b = (x if _safe(t) else np.abs(x) for x, t in ((a, tree[2]), (b, tree[3])))
    functions: dict[str, Any] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "max": np.fmax,
        "min": np.fmin,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    return functions[operation](a, b).astype(element)


def _odd(x: Any) -> Any:
    """float64 as a float32 that rounds to eight bits as the float64 does: inexact ones get an odd last bit."""
    if x.dtype != np.float64:
        return x.astype(np.float32)
    nearest = x.astype(np.float32)
    back = nearest.astype(np.float64)
    down = np.where(np.abs(back) > np.abs(x), np.nextafter(nearest, np.float32(0)), nearest).astype(np.float32)
    return (down.view(np.uint32) | ((back != x) & ~np.isnan(x))).astype(np.uint32).view(np.float32)


# -- kernels --------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> Any:
    inputs = tuple(draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3)))
    outputs = draw(st.lists(st.sampled_from(TYPES), min_size=2, max_size=4))
    expressions = [draw(trees(kind, inputs, 3)) for kind in outputs]
    return inputs, expressions, draw(st.sampled_from([5, 32, 37])), draw(st.integers(0, 1000)), draw(st.booleans())


def kernel(inputs: tuple[str, ...], expressions: list[Tree], count: int, staged: bool) -> Any:
    """Three inputs (unused ones are bytes) and four results; `staged`: by way of tiles instead of global memory."""
    kinds = [*inputs, *["uint8"] * (3 - len(inputs))]
    results = [*(tree[1] for tree in expressions), *["uint8"] * (4 - len(expressions))]

    def shape(kind):
        return T.Tensor((count,), kind)

    @T.prim_func
    def main(
        A: shape(kinds[0]),
        B: shape(kinds[1]),
        C: shape(kinds[2]),
        W: shape(results[0]),
        X: shape(results[1]),
        Y: shape(results[2]),
        Z: shape(results[3]),
    ):
        with T.Kernel(1, threads=32):
            for tree, out in zip(expressions, (W, X, Y, Z)):
                if staged:
                    tiles = [T.alloc_shared((count,), t.dtype) for t in (A, B, C)]
                    for tensor, tile in zip((A, B, C), tiles):
                        T.copy(tensor, tile)
                    result = T.alloc_fragment((count,), tree[1])
                    for i in T.Parallel(count):
                        result[i] = build(tree, [t[i] for t in tiles])
                    T.copy(result, out)
                else:
                    for i in T.Parallel(count):
                        out[i] = build(tree, [A[i], B[i], C[i]])

    return main


@given(programs())
def test_expressions(program):
    inputs, expressions, count, seed, staged = program
    data = [random_values((count,), kind, seed + i) for i, kind in enumerate(inputs)]
    unused = [np.ones(count, np.uint8) for _ in range(3 - len(inputs))]
    with np.errstate(all="ignore"):
        want = [value(tree, data) for tree in expressions]
    blanks = [np.zeros_like(w) for w in want]
    rest = [np.ones(count, np.uint8) for _ in range(4 - len(want))]
    arguments = [*data, *unused, *blanks, *rest]
    agree(kernel(inputs, expressions, count, staged), arguments, [None] * 3 + want + [None] * len(rest))


SMALL = ("bool", "int1", "uint1", "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e4m3fn", "float8_e5m2")


@given(st.sampled_from(SMALL), st.sampled_from(TYPES), st.integers(0, 1000))
def test_small_types(small, dtype, seed):
    """Types that only memory holds: read, converted, written back."""

    @T.prim_func
    def main(A: T.Tensor((2, 40), small), B: T.Tensor((2, 40), dtype), C: T.Tensor((2, 40), small)):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(2, 40):
                B[i, j] = A[i, j]
            for i, j in T.Parallel(2, 40):
                C[i, j] = B[1 - i, 39 - j]

    a = random_values((2, 40), small, seed)
    b = cast(a, small, dtype)
    c = cast(b[::-1, ::-1], dtype, small)
    stored, blank = to_storage(a, small), np.zeros_like(b)
    agree(main, [stored, blank, np.zeros_like(stored)], [None, b, to_storage(c, small)])


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.integers(0, 1000))
@example("uint8", "int8", 0)
def test_floor_division_of_a_wrapped_cast(source, target, seed):
    """What a cast wrapped may be negative, whatever is known of its operand."""

    @T.prim_func
    def main(A: T.Tensor((32,), source), B: T.Tensor((2, 32), target)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[0, i] = T.cast(A[i], target) // 3
            for i in T.Parallel(32):
                B[1, i] = T.cast(A[i], target) % ((T.cast(A[i], target) & 7) + 1)

    a = random_values((32,), source, seed)
    x = cast(a, source, target)
    want = np.stack([x // x.dtype.type(3), x % ((x & x.dtype.type(7)) + x.dtype.type(1))])
    agree(main, [a, np.zeros_like(want)], [None, want])
