"""Index expressions: the closed algebra in which layouts are written.

    expr ::= constant                       a Python int
           | placeholder                    a name: i, j, k, l, i4, i5, ..., rep
           | op(expr, ...)                  one of OPERATORS
           | lookup(table, expr)            a constant tuple of ints

An index function such as `lambda i, j: i * 8 + (j ^ i % 8)` is called once on placeholders, and what it returns is
the expression. The same expression is evaluated on Python ints and numpy arrays, printed, stored as JSON, and
handed to the compiler, which evaluates it on its own variables (`evaluate(..., operators=...)`).
`//` and `%` round towards minus infinity, as in Python; comparisons give 0 or 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

Json: TypeAlias = Any
Operators: TypeAlias = "Mapping[str, Callable[..., Any]] | None"
REPLICA = "rep"


def _as_number(result: Any) -> Any:
    """Booleans become 0 and 1: numpy would otherwise read `+` on booleans as `or`."""
    if isinstance(result, np.ndarray) and result.dtype == np.bool_:
        return result.astype(np.int64)
    return int(result) if isinstance(result, (bool, np.bool_)) else result


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: _as_number(compare(a, b))


def _minimum(a: Any, b: Any) -> Any:
    if isinstance(a, IndexExpr) or isinstance(b, IndexExpr):
        return minimum(a, b)
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def _maximum(a: Any, b: Any) -> Any:
    if isinstance(a, IndexExpr) or isinstance(b, IndexExpr):
        return maximum(a, b)
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def _select(condition: Any, then: Any, otherwise: Any) -> Any:
    if any(isinstance(x, IndexExpr) for x in (condition, then, otherwise)):
        return select(condition, then, otherwise)
    if any(isinstance(x, np.ndarray) for x in (condition, then, otherwise)):
        return np.where(np.asarray(condition) != 0, then, otherwise)
    return then if condition else otherwise


def _lookup(values: Sequence[int], index: Any) -> Any:
    if isinstance(index, IndexExpr):
        return lookup(values, index)
    return np.asarray(values, dtype=np.int64)[index] if isinstance(index, np.ndarray) else values[index]


@dataclass(frozen=True)
class Operator:
    """How one operator is written and what it means; `precedence` 0 prints it as a call."""

    arity: int
    precedence: int
    meaning: Callable[..., Any]


# Python's own precedences, so that a printed expression can be pasted back into a lambda.
OPERATORS: Mapping[str, Operator] = {
    "<": Operator(2, 1, _comparison(operator.lt)),
    "<=": Operator(2, 1, _comparison(operator.le)),
    ">": Operator(2, 1, _comparison(operator.gt)),
    ">=": Operator(2, 1, _comparison(operator.ge)),
    "==": Operator(2, 1, _comparison(operator.eq)),
    "!=": Operator(2, 1, _comparison(operator.ne)),
    "|": Operator(2, 2, operator.or_),
    "^": Operator(2, 3, operator.xor),
    "&": Operator(2, 4, operator.and_),
    "<<": Operator(2, 5, operator.lshift),
    ">>": Operator(2, 5, operator.rshift),
    "+": Operator(2, 6, operator.add),
    "-": Operator(2, 6, operator.sub),
    "*": Operator(2, 7, operator.mul),
    "//": Operator(2, 7, operator.floordiv),
    "%": Operator(2, 7, operator.mod),
    "min": Operator(2, 0, _minimum),
    "max": Operator(2, 0, _maximum),
    "select": Operator(3, 0, _select),
}
_COMMUTATIVE = frozenset("+*^&|")
_ATOM = 100  # binds tighter than every operator: names, numbers and calls need no parentheses


class IndexExpr:
    """Base of the four node classes; immutable. Operators build new nodes and fold constants."""

    __slots__ = ()
    # numpy scalars on the left (`np.int64(8) * i`) must defer to us instead of making an object array.
    __array_ufunc__ = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable structure, for comparing expressions as text-like trees (`==` builds a comparison instead)."""
        raise NotImplementedError

    def evaluate(self, values: Mapping[str, Any], operators: Operators = None) -> Any:
        """The expression's value where placeholder `name` is `values[name]`.

        Values may be ints, numpy arrays (broadcast), other index expressions (substitution), or anything with
        Python's integer operators. `operators` replaces the meaning of single operators, and of `"lookup"`
        (called with the tuple and the index), for value types that need it.
        """
        raise NotImplementedError

    def to_json(self) -> Json:
        """Plain values: ints, names as strings, and prefix lists `[operator, argument, ...]`."""
        raise NotImplementedError

    def __add__(self, other: Any) -> IndexExpr:
        return apply("+", self, other)

    def __radd__(self, other: Any) -> IndexExpr:
        return apply("+", other, self)

    def __sub__(self, other: Any) -> IndexExpr:
        return apply("-", self, other)

    def __rsub__(self, other: Any) -> IndexExpr:
        return apply("-", other, self)

    def __mul__(self, other: Any) -> IndexExpr:
        return apply("*", self, other)

    def __rmul__(self, other: Any) -> IndexExpr:
        return apply("*", other, self)

    def __floordiv__(self, other: Any) -> IndexExpr:
        return apply("//", self, other)

    def __rfloordiv__(self, other: Any) -> IndexExpr:
        return apply("//", other, self)

    def __mod__(self, other: Any) -> IndexExpr:
        return apply("%", self, other)

    def __rmod__(self, other: Any) -> IndexExpr:
        return apply("%", other, self)

    def __xor__(self, other: Any) -> IndexExpr:
        return apply("^", self, other)

    def __rxor__(self, other: Any) -> IndexExpr:
        return apply("^", other, self)

    def __and__(self, other: Any) -> IndexExpr:
        return apply("&", self, other)

    def __rand__(self, other: Any) -> IndexExpr:
        return apply("&", other, self)

    def __or__(self, other: Any) -> IndexExpr:
        return apply("|", self, other)

    def __ror__(self, other: Any) -> IndexExpr:
        return apply("|", other, self)

    def __lshift__(self, other: Any) -> IndexExpr:
        return apply("<<", self, other)

    def __rlshift__(self, other: Any) -> IndexExpr:
        return apply("<<", other, self)

    def __rshift__(self, other: Any) -> IndexExpr:
        return apply(">>", self, other)

    def __rrshift__(self, other: Any) -> IndexExpr:
        return apply(">>", other, self)

    def __lt__(self, other: Any) -> IndexExpr:
        return apply("<", self, other)

    def __le__(self, other: Any) -> IndexExpr:
        return apply("<=", self, other)

    def __gt__(self, other: Any) -> IndexExpr:
        return apply(">", self, other)

    def __ge__(self, other: Any) -> IndexExpr:
        return apply(">=", self, other)

    def __eq__(self, other: Any) -> IndexExpr:  # type: ignore[override]
        return apply("==", self, other)

    def __ne__(self, other: Any) -> IndexExpr:  # type: ignore[override]
        return apply("!=", self, other)

    __hash__ = None  # type: ignore[assignment]  # `==` builds an expression, so a set of them would lie; use `key`

    def __neg__(self) -> IndexExpr:
        return apply("*", self, -1)

    def __truediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"The index function divides {self} with '/', but an index is an integer. Use '//' instead.")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"The index function tests '{self}' as true or false, but its value is not known while the layout is "
            "built. Use tilelang.layout.select(condition, a, b), minimum(a, b) or maximum(a, b) instead."
        )

    def __index__(self) -> NoReturn:
        raise TypeError(
            f"The index function needs '{self}' as a plain number, but its value is not known while the layout is "
            "built. To read a table of ints use tilelang.layout.lookup(table, index)."
        )

    def __repr__(self) -> str:
        return str(self)


class Const(IndexExpr):
    """A constant int."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    @property
    def key(self) -> tuple[Any, ...]:
        return ("const", self.value)

    def evaluate(self, values: Mapping[str, Any], operators: Operators = None) -> Any:
        return self.value

    def to_json(self) -> Json:
        return self.value

    def __str__(self) -> str:
        return str(self.value)


class Placeholder(IndexExpr):
    """A named input of the index function; see `placeholders`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> tuple[Any, ...]:
        return ("placeholder", self.name)

    def evaluate(self, values: Mapping[str, Any], operators: Operators = None) -> Any:
        return values[self.name]

    def to_json(self) -> Json:
        return self.name

    def __str__(self) -> str:
        return self.name


class Op(IndexExpr):
    """One of `OPERATORS` on its arguments. Build it with `apply`, which folds constants."""

    __slots__ = ("args", "op")

    def __init__(self, op: str, args: tuple[IndexExpr, ...]) -> None:
        self.op = op
        self.args = args

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.op, *(a.key for a in self.args))

    def evaluate(self, values: Mapping[str, Any], operators: Operators = None) -> Any:
        args = [a.evaluate(values, operators) for a in self.args]
        meaning = operators.get(self.op) if operators else None
        return (meaning or OPERATORS[self.op].meaning)(*args)

    def to_json(self) -> Json:
        return [self.op, *(a.to_json() for a in self.args)]

    def __str__(self) -> str:
        precedence = OPERATORS[self.op].precedence
        if not precedence:
            return f"{self.op}({', '.join(str(a) for a in self.args)})"
        left, right = self.args
        return f"{_wrapped(left, precedence)} {self.op} {_wrapped(right, precedence + 1)}"


class Table(IndexExpr):
    """A constant tuple of ints read at an index; the form of maps that have no closed formula."""

    __slots__ = ("index", "values")

    def __init__(self, values: tuple[int, ...], index: IndexExpr) -> None:
        self.values = values
        self.index = index

    @property
    def key(self) -> tuple[Any, ...]:
        return ("lookup", self.values, self.index.key)

    def evaluate(self, values: Mapping[str, Any], operators: Operators = None) -> Any:
        meaning = operators.get("lookup") if operators else None
        return (meaning or _lookup)(self.values, self.index.evaluate(values, operators))

    def to_json(self) -> Json:
        return ["lookup", list(self.values), self.index.to_json()]

    def __str__(self) -> str:
        shown = ", ".join(str(v) for v in self.values[:8])
        more = f", ... {len(self.values)} values" if len(self.values) > 8 else ""
        return f"lookup([{shown}{more}], {self.index})"


def _wrapped(expr: IndexExpr, needed: int) -> str:
    """`expr` in parentheses unless it binds at least as tightly as `needed`; bit operators always get them."""
    precedence = (OPERATORS[expr.op].precedence or _ATOM) if isinstance(expr, Op) else _ATOM
    if isinstance(expr, Const) and expr.value < 0:
        precedence = 0
    bits_and_sums = precedence != _ATOM and (precedence < 6 or needed < 6)
    return f"({expr})" if precedence < needed or bits_and_sums else str(expr)


def as_expr(value: Any) -> IndexExpr:
    """An expression from an int or an expression; TypeError for anything else."""
    if isinstance(value, IndexExpr):
        return value
    try:
        return Const(operator.index(value))
    except TypeError:
        raise TypeError(
            f"An index must be an integer or an expression of the index function's arguments, but "
            f"{value!r} of type {type(value).__name__} was found. Use '//' for division and int(...) for constants."
        ) from None


def apply(op: str, *arguments: Any) -> IndexExpr:
    """The operator on its arguments, with constants folded and neutral elements dropped."""
    args = tuple(as_expr(a) for a in arguments)
    if op in ("//", "%") and isinstance(args[1], Const) and args[1].value == 0:
        raise ValueError(f"The index function computes '{args[0]} {op} 0'. Divide by an extent of at least 1.")
    if all(isinstance(a, Const) for a in args):
        return Const(int(OPERATORS[op].meaning(*(a.value for a in args if isinstance(a, Const)))))
    if op == "select":
        return args[1 if args[0].value else 2] if isinstance(args[0], Const) else Op(op, args)
    if op in _COMMUTATIVE and isinstance(args[0], Const):
        args = (args[1], args[0])
    left, right = args
    if isinstance(right, Const):
        if (op in ("+", "-", "^", "|", "<<", ">>") and right.value == 0) or (op in ("*", "//") and right.value == 1):
            return left
        if (op in ("*", "&") and right.value == 0) or (op == "%" and right.value == 1):
            return Const(0)
    return Op(op, args)


def minimum(a: Any, b: Any) -> IndexExpr:
    """The smaller of two index expressions."""
    return apply("min", a, b)


def maximum(a: Any, b: Any) -> IndexExpr:
    """The larger of two index expressions."""
    return apply("max", a, b)


def select(condition: Any, then: Any, otherwise: Any) -> IndexExpr:
    """`then` where the condition is not 0, else `otherwise`; both are evaluated."""
    return apply("select", condition, then, otherwise)


def lookup(table: Iterable[int], index: Any) -> IndexExpr:
    """`table[index]` for a constant table of ints; the index must stay in `[0, len(table))`."""
    values = tuple(operator.index(v) for v in table)
    place = as_expr(index)
    return Const(values[place.value]) if isinstance(place, Const) else Table(values, place)


def placeholders(rank: int) -> tuple[Placeholder, ...]:
    """The inputs of a map of `rank` indices: i, j, k, l, i4, i5, ..."""
    return tuple(Placeholder("ijkl"[n] if n < 4 else f"i{n}") for n in range(rank))


def substitute(expr: IndexExpr, values: Mapping[str, IndexExpr]) -> IndexExpr:
    """`expr` with placeholders replaced; names that `values` lacks stay."""

    class _Kept(dict[str, Any]):
        def __missing__(self, name: str) -> IndexExpr:
            return Placeholder(name)

    return as_expr(expr.evaluate(_Kept(values)))


def expr_from_json(data: Json) -> IndexExpr:
    """The inverse of `IndexExpr.to_json`; ValueError if `data` is not of that form."""
    if isinstance(data, int) and not isinstance(data, bool):
        return Const(data)
    if isinstance(data, str) and data.isidentifier():
        return Placeholder(data)
    if isinstance(data, list) and data:
        head, *rest = data
        if head == "lookup" and len(rest) == 2 and isinstance(rest[0], list):
            if not all(isinstance(v, int) for v in rest[0]):
                raise ValueError(f"A stored lookup table holds {rest[0]!r}; expected a list of ints. Write it again.")
            return lookup(rest[0], expr_from_json(rest[1]))
        if isinstance(head, str) and head in OPERATORS and len(rest) == OPERATORS[head].arity:
            return apply(head, *(expr_from_json(a) for a in rest))
    raise ValueError(
        f"A stored index expression reads {data!r}; expected an int, a name, or a list that starts with one of "
        f"{', '.join(OPERATORS)}, lookup. Write it again with to_json()."
    )
