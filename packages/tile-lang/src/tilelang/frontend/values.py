"""What a kernel's names hold while it is traced: run-time scalars (`Value`) and the rules of their arithmetic.

A literal takes the other operand's type; two run-time operands meet in `dtypes.result_type`; nothing is folded
for floats, so `x * 0` and `x - x` stay (design.md, Arithmetic). TVM nodes are made on demand: dimensions named
at module level cost no import of TVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.errors import DtypeError, StaticValueNeeded
from tilelang.frontend.literals import COMPARISONS, PYTHON, SYMBOL, constant, fits, is_literal, literal_dtype
from tilelang.ir.dtypes import DType, dtype_of, result_type


class Value:
    """A scalar that exists when the kernel runs. `dtype` is its type; `node` the tirx expression."""

    __slots__ = ("_node", "dtype")
    __array_ufunc__ = None  # a numpy scalar on the left leaves the operation to us

    def __init__(self, node: Any, dtype: DType) -> None:
        self._node = node
        self.dtype = dtype

    @property
    def node(self) -> Any:
        """The tirx expression; a function stored instead of one is called the first time."""
        if callable(self._node) and not hasattr(self._node, "ty"):
            self._node = self._node()
        return self._node

    # -- arithmetic --------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return binary("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return binary("truediv", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return binary("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return power(other, self)

    def __and__(self, other: Any) -> Any:
        return binary("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return binary("and", other, self)

    def __or__(self, other: Any) -> Any:
        return binary("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return binary("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return binary("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return binary("xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return binary("lshift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return binary("lshift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return binary("rshift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return binary("rshift", other, self)

    def __neg__(self) -> Any:
        if self.dtype.is_float:
            if type(self.node).__name__ == "FloatImm":
                return Value(constant(-self.node.value, self.dtype), self.dtype)
            return binary("mul", self, -1.0)  # keeps the sign of zero, which 0 - x would lose
        return binary("sub", 0, self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        if self.dtype.kind == "bool":
            return logical_not(self)
        return binary("xor", self, -1)

    def __abs__(self) -> Any:
        from tilelang.language.math import abs as tile_abs

        return tile_abs(self)

    # -- comparisons -------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> Any:
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return binary("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return binary("ge", self, other)

    __hash__ = object.__hash__

    # -- Python asks for a value now ---------------------------------------------------------------------
    def __bool__(self) -> bool:
        raise StaticValueNeeded(
            "a run-time value is used as a Python truth value",
            found=f"{self!r}, known only when the kernel runs",
            expected="a value known at compile time",
            repair="use `if` directly in the kernel or in a function under @T.macro, T.if_then_else(cond, a, b) for a "
            "value, or T.device_assert for an assertion",
        )

    def __index__(self) -> int:
        raise StaticValueNeeded(
            "a run-time value is used where Python needs an integer",
            found=f"{self!r}, known only when the kernel runs",
            expected="an integer known at compile time",
            repair="use T.serial(n) instead of a Python loop over it, or make the size a Python int",
        )

    __int__ = __index__

    def __float__(self) -> float:
        self.__index__()
        return 0.0

    def __iter__(self) -> Any:
        # `with T.Kernel(n) as (bx,)`: one grid axis is also a sequence of one.
        raise TypeError(f"{self!r} is a scalar and cannot be iterated")

    # -- conversions -------------------------------------------------------------------------------------
    def astype(self, dtype: Any) -> Any:
        return cast(self, dtype)

    def exp(self) -> Any:
        from tilelang.language.math import exp

        return exp(self)

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.node}>"


class AxisVar(Value):
    """The block index of a kernel with one grid axis: a scalar that also unpacks, `as bx` and `as (bx,)`."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return iter((self,))


def is_runtime(x: Any) -> bool:
    """Whether `x` exists only when the kernel runs."""
    return isinstance(x, Value)


def as_value(x: Any, dtype: DType | None = None) -> Value:
    """`x` as a run-time value; a literal takes `dtype` or its own type."""
    if isinstance(x, Value):
        return x
    if is_literal(x):
        dtype = dtype or literal_dtype(x)
        return Value(lambda: constant(x, dtype), dtype)
    if hasattr(x, "ty"):  # a tirx expression, from code written against TVM
        from tilelang.ir.tile_ir import dtype_name

        return Value(x, dtype_of(dtype_name(x)))
    from tilelang.errors import RuntimeValueNeeded

    raise RuntimeValueNeeded(
        "an object that is no number stands where a scalar is needed",
        found=f"{type(x).__name__} {x!r}"[:200],
        expected="a number, an element such as A[i, j], or an expression of them",
        repair="index a buffer to get one element; use T.copy or T.Parallel for whole tiles",
    )


def node_of(x: Any, dtype: DType | None = None) -> Any:
    """The tirx expression of `x`, converted to `dtype` if given."""
    value = as_value(x, dtype)
    return convert(value, dtype).node if dtype is not None else value.node


def index_node(x: Any) -> Any:
    """`x` as an index expression: int32, or int64 when it is one already."""
    value = as_value(x)
    if not (value.dtype.is_integer or value.dtype.kind == "bool"):
        raise DtypeError(
            "an index is not an integer",
            found=f"{value!r}",
            expected="an integer expression",
            repair="use // for integer division, or T.cast(x, 'int32')",
        )
    if value.dtype not in ("int32", "int64"):
        value = convert(value, DType("int64" if value.dtype.bits > 32 or value.dtype == "uint32" else "int32"))
    return value.node


def convert(value: Value, dtype: DType) -> Value:
    """`value` in another type, with the conversions of docs/internals/tile-ir.md; itself if it has the type."""
    if value.dtype == dtype or value.dtype.storage == dtype.storage:
        return value if value.dtype == dtype else Value(value._node, dtype)
    if dtype.lanes != value.dtype.lanes:
        if value.dtype.lanes != 1:
            raise DtypeError(
                "vector lengths differ",
                found=f"{value.dtype} to {dtype}",
                expected="equal lanes, or a scalar to spread",
                repair="T.view or T.cast to vectors of one length",
            )
        scalar = convert(value, dtype.scalar)

        def spread() -> Any:
            from tvm import tirx

            return tirx.Broadcast(scalar.node, dtype.lanes)

        return Value(spread, dtype)

    def make() -> Any:
        from tvm import tirx

        node = value.node
        if dtype.kind == "bool":
            return tirx.NE(node, constant(0, value.dtype))
        # A floating literal is folded only from float64: the others hold it unrounded.
        literal = type(node).__name__ == "IntImm" or (type(node).__name__ == "FloatImm" and value.dtype == "float64")
        if literal and dtype.scalar in ("int32", "int64", "float32", "float64"):
            return constant(node.value, dtype)
        return tirx.Cast(str(dtype.storage), node)

    return _lazy(make, dtype, (value,))


def cast(x: Any, dtype: Any) -> Any:
    """`T.cast(x, dtype)`: convert one scalar. Outside a kernel a number gives a numpy scalar of the type."""
    target = dtype_of(dtype)
    if is_literal(x):
        from tilelang.frontend.builder import active

        if active() is None:
            return target.as_numpy().type(x)
        return as_value(x, target)
    return convert(as_value(x), target)


def _lazy(make: Callable[[], Any], dtype: DType, operands: tuple[Any, ...]) -> Value:
    """A value whose node is made at once if its operands' nodes are, and when first asked for otherwise."""
    for x in operands:
        if isinstance(x, Value) and callable(x._node) and not hasattr(x._node, "ty"):
            return Value(make, dtype)
    return Value(make(), dtype)


def coerce(a: Any, b: Any) -> tuple[Value, Value, DType]:
    """Both operands in their common type."""
    if is_literal(a) and isinstance(b, Value):
        b2, a2, dtype = coerce(b, a)
        return a2, b2, dtype
    if is_literal(b):
        a = as_value(a)
        kind = literal_dtype(b)
        if kind.is_float and not a.dtype.is_float:
            dtype = DType("float32").with_lanes(a.dtype.lanes)
        elif a.dtype.kind == "bool" and kind.kind != "bool":
            dtype = kind
        elif kind.is_integer and a.dtype.is_integer and not fits(int(b), a.dtype):
            dtype = DType("int64").with_lanes(a.dtype.lanes)
        else:
            dtype = a.dtype
        return convert(a, dtype), as_value(b, dtype), dtype
    a, b = as_value(a), as_value(b)
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    dtype = a.dtype if a.dtype == b.dtype else result_type(a.dtype, b.dtype).with_lanes(lanes)
    return convert(a, dtype), convert(b, dtype), dtype


def binary(op: str, a: Any, b: Any) -> Any:
    """`a op b`. Two literals are Python's business."""
    if is_literal(a) and is_literal(b):
        return PYTHON[op](a, b)
    for x in (a, b):
        if not (isinstance(x, Value) or is_literal(x) or hasattr(x, "ty")):
            if op == "eq":
                return False
            if op == "ne":
                return True
            if hasattr(x, "shape"):
                from tilelang.errors import RuntimeValueNeeded

                raise RuntimeValueNeeded(
                    f"a whole tile is an operand of `{SYMBOL[op]}`",
                    found=f"{x!r}",
                    expected="scalars, such as A[i, j]",
                    repair=f"write the loop: `for i, j in T.Parallel(...): C[i, j] = A[i, j] {SYMBOL[op]} ...`",
                )
            return NotImplemented
    x, y, dtype = coerce(a, b)
    if op in ("and", "or", "xor", "lshift", "rshift") and dtype.is_float:
        raise DtypeError(
            f"`{SYMBOL[op]}` needs integers",
            found=f"{x!r} and {y!r}",
            expected="integer or bool operands",
            repair="T.cast(x, 'int32') converts the value, T.reinterpret(x, 'int32') its bits",
        )
    if op == "truediv" and not dtype.is_float:
        raise DtypeError(
            "`/` of two integers",
            found=f"{x!r} / {y!r}",
            expected="a floating operand, or an integer division",
            repair="use // for the floor, or T.cast(x, 'float32') / y",
        )
    result = DType("bool").with_lanes(dtype.lanes) if op in COMPARISONS else dtype
    return _lazy(lambda: _node(op, x, y, dtype), result, (x, y))


def _node(op: str, x: Value, y: Value, dtype: DType) -> Any:
    from tvm import tirx

    a, b = x.node, y.node
    if dtype.kind == "bool" and op in ("and", "or", "xor"):
        return {"and": tirx.And, "or": tirx.Or, "xor": tirx.NE}[op](a, b)
    if dtype.kind == "bool" and op in ("add", "mul", "sub"):
        a, b = tirx.Cast("int32", a), tirx.Cast("int32", b)
    if op in COMPARISONS:
        return {"eq": tirx.EQ, "ne": tirx.NE, "lt": tirx.LT, "le": tirx.LE, "gt": tirx.GT, "ge": tirx.GE}[op](a, b)
    if dtype.is_float or dtype.lanes > 1:
        # The node classes do not fold: x * 0 must stay x * 0 (NaN and infinity).
        if op == "floordiv":
            return tirx.floor(tirx.Div(a, b))
        if op == "mod":
            return tirx.Sub(a, tirx.Mul(tirx.floor(tirx.Div(a, b)), b))
        classes = {"add": tirx.Add, "sub": tirx.Sub, "mul": tirx.Mul, "truediv": tirx.Div}
        if op in classes:
            return classes[op](a, b)
    if op == "floordiv":
        return tirx.floordiv(a, b)
    if op == "mod":
        return tirx.floormod(a, b)
    return PYTHON[op](a, b)


def power(a: Any, b: Any) -> Any:
    """`a ** b`: repeated products for small integer exponents, `T.pow` otherwise."""
    if isinstance(b, int) and not isinstance(b, bool) and 0 < b <= 8:
        result = a
        for _ in range(b - 1):
            result = result * a
        return result
    from tilelang.language.math import pow as tile_pow

    return tile_pow(a, b)


def logical_not(x: Any) -> Any:
    if not isinstance(x, Value):
        return not x
    value = convert(x, DType("bool").with_lanes(x.dtype.lanes))

    def make() -> Any:
        from tvm import tirx

        return tirx.Not(value.node)

    return _lazy(make, value.dtype, (value,))


def logical(op: str, a: Any, b: Any) -> Any:
    """`a and b`, `a or b` of run-time values: both sides are evaluated, the result is a bool."""
    truth = DType("bool")
    x, y = convert(as_value(a), truth), convert(as_value(b), truth)

    def make() -> Any:
        from tvm import tirx

        return (tirx.And if op == "and" else tirx.Or)(x.node, y.node)

    return _lazy(make, truth, (x, y))


def select(condition: Any, then: Any, otherwise: Any) -> Any:
    """`T.if_then_else`: the value of one side; only the taken side is read."""
    if not isinstance(condition, Value):
        return then if condition else otherwise
    a, b, dtype = coerce(then, otherwise)
    truth = convert(condition, DType("bool"))

    def make() -> Any:
        from tvm import tirx

        return tirx.if_then_else(truth.node, a.node, b.node)

    return _lazy(make, dtype, (truth, a, b))


class Dynamic(Value):
    """A dimension known only when the kernel is called, `T.dynamic("m")`; positive, bound from a shape."""

    __slots__ = ("name",)

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name

        def make() -> Any:
            from tvm import tirx

            return tirx.Var(name, str(dtype))

        super().__init__(make, dtype)

    def __repr__(self) -> str:
        return f'T.dynamic("{self.name}")'
