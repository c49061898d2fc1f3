"""The expressions of a manifest: prefix lists over int64 with a closed set of operators.

    ["ceildiv", ["dim", "M"], 128]      ["and", [">", ["param", "n"], 0], ["==", ["floormod", ["dim", "K"], 8], 0]]

An integer is a constant; every other node is a list whose first entry names the operator (docs/internals/runtime.md has
the table). An expression is checked once by `validate`; afterwards `evaluate` computes it and `to_python` turns it into
the text that a generated launcher holds. Comparisons and logic give 1 or 0. Integers are exact, never wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ExpressionError

Expression = Any
"""An int, or a list [operator, operand, ...]."""

MAX_DEPTH = 64  # CPython's tokenizer stops at 200 nested parentheses; one level prints at most two
MAX_NODES = 4096
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

REFERENCES = ("dim", "param", "address")
_VARIADIC = {"+": " + ", "*": " * ", "and": " and ", "or": " or ", "min": ", ", "max": ", "}
_BINARY = ("-", "floordiv", "floormod", "ceildiv", "==", "!=", "<", "<=", ">", ">=")
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
#: How operators are written for people, and which bind firmer, from `or` to products.
_WORDS = {"floordiv": "//", "floormod": "%"}
_BINDING = (("or",), ("and",), ("not",), tuple(_COMPARISONS), ("+", "-"), ("*", "floordiv", "floormod"))
_UNARY = len(_BINDING)
OPERATORS = frozenset((*REFERENCES, *_VARIADIC, *_BINARY, "not", "select"))


@dataclass(frozen=True)
class Names:
    """What an expression may refer to, as sets of names; `addresses` are tensor params whose address is known."""

    dims: frozenset[str] = field(default_factory=frozenset)
    params: frozenset[str] = field(default_factory=frozenset)
    addresses: frozenset[str] = field(default_factory=frozenset)

    def of(self, reference: str) -> frozenset[str]:
        return {"dim": self.dims, "param": self.params, "address": self.addresses}[reference]


def _is_int(node: object) -> bool:
    return isinstance(node, int) and not isinstance(node, bool)


def validate(expression: Expression, names: Names = Names()) -> None:
    """Raises ExpressionError unless the expression is of the language and refers only to `names`."""
    budget = MAX_NODES

    def visit(node: Expression, depth: int) -> None:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise ExpressionError(f"expression has more than {MAX_NODES} nodes")
        if depth > MAX_DEPTH:
            raise ExpressionError(f"expression is nested deeper than {MAX_DEPTH} levels")
        if _is_int(node):
            if not INT64_MIN <= node <= INT64_MAX:
                raise ExpressionError(f"constant {node:#x} does not fit int64")
            return
        if not isinstance(node, (list, tuple)) or not node or not isinstance(node[0], str):
            raise ExpressionError(f"expected an integer or a list [operator, ...], found {_short(node)}")
        operator, operands = node[0], node[1:]
        if operator in REFERENCES:
            _check_reference(operator, operands, names)
            return
        if operator not in OPERATORS:
            raise ExpressionError(f"unknown operator {_short(operator)}; known: {', '.join(sorted(OPERATORS))}")
        _check_arity(operator, len(operands))
        if operator in ("floordiv", "floormod", "ceildiv") and operands[1] == 0:
            raise ExpressionError(f"division by the constant zero in {_short(list(node))}")
        for operand in operands:
            visit(operand, depth + 1)

    visit(expression, 1)


def _check_reference(operator: str, operands: Any, names: Names) -> None:
    if len(operands) != 1 or not isinstance(operands[0], str):
        raise ExpressionError(f"[{operator!r}, name] expected, found {_short([operator, *operands])}")
    known = names.of(operator)
    if operands[0] not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise ExpressionError(f"{operator} {_short(operands[0])} is not one that may be used here (known: {listed})")


def _check_arity(operator: str, found: int) -> None:
    if operator in _VARIADIC:
        if found < 2:
            raise ExpressionError(f"operator {operator!r} takes two or more operands, found {found}")
        return
    expected = {"not": 1, "select": 3}.get(operator, 2)
    if found != expected:
        raise ExpressionError(f"operator {operator!r} takes {expected} operand(s), found {found}")


def evaluate(
    expression: Expression,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, int] | None = None,
    addresses: Mapping[str, int] | None = None,
) -> int:
    """The value of a validated expression. Raises ExpressionError for a division by zero."""
    tables = {"dim": dims or {}, "param": params or {}, "address": addresses or {}}

    def value(node: Expression) -> int:
        if _is_int(node):
            return int(node)
        operator, operands = node[0], node[1:]
        if operator in tables:
            return int(tables[operator][operands[0]])
        if operator == "and":
            return int(all(value(x) for x in operands))
        if operator == "or":
            return int(any(value(x) for x in operands))
        if operator == "select":
            return value(operands[1] if value(operands[0]) else operands[2])
        return _apply(operator, [value(x) for x in operands])

    try:
        return value(expression)
    except ZeroDivisionError:
        raise ExpressionError(f"division by zero in {to_text(expression)}") from None


def _apply(operator: str, values: list[int]) -> int:
    a, b = values[0], values[-1]
    if operator in _COMPARISONS:
        return int(_COMPARISONS[operator](a, b))
    if operator == "+":
        return sum(values)
    if operator == "*":
        product = 1
        for v in values:
            product *= v
        return product
    simple: dict[str, Callable[[], int]] = {
        "-": lambda: a - b,
        "floordiv": lambda: a // b,
        "floormod": lambda: a % b,
        "ceildiv": lambda: -(-a // b),
        "min": lambda: min(values),
        "max": lambda: max(values),
        "not": lambda: int(not a),
    }
    return simple[operator]()


def references(expression: Expression, operator: str) -> set[str]:
    """Names that a validated expression refers to by `operator` ("dim", "param" or "address")."""
    if _is_int(expression):
        return set()
    if expression[0] in REFERENCES:
        return {expression[1]} if expression[0] == operator else set()
    return set().union(*(references(x, operator) for x in expression[1:]))


def to_python(expression: Expression, rename: Callable[[str, str], str]) -> str:
    """Python text with the same value; `rename(reference operator, name)` gives the text of a reference.

    Names of the manifest reach the text only through `rename`, so a hostile name cannot become code.
    """
    if _is_int(expression):
        return str(int(expression)) if expression >= 0 else f"({int(expression)})"
    operator, operands = expression[0], expression[1:]
    if operator in REFERENCES:
        return rename(operator, operands[0])
    texts = [to_python(x, rename) for x in operands]
    if operator in ("and", "or"):
        return f"({_VARIADIC[operator].join(texts)})" if _all_logical(operands) else _logical(operator, texts)
    if operator in ("min", "max"):
        return f"{operator}({', '.join(texts)})"
    if operator in _VARIADIC:
        return f"({_VARIADIC[operator].join(texts)})"
    if operator == "not":
        return f"(not {texts[0]})"
    if operator == "select":
        return f"({texts[1]} if {texts[0]} else {texts[2]})"
    if operator == "ceildiv":
        return f"(-(-{texts[0]} // {texts[1]}))"
    python = {"floordiv": "//", "floormod": "%"}.get(operator, operator)
    return f"({texts[0]} {python} {texts[1]})"


def _all_logical(operands: Any) -> bool:
    """Whether Python's `and` / `or` gives 0 or 1 (a bool) for these operands, and not one of them."""
    logical = {"and", "or", "not", *_COMPARISONS}
    return all(isinstance(x, (list, tuple)) and x[0] in logical for x in operands)


def _logical(operator: str, texts: list[str]) -> str:
    return "(" + _VARIADIC[operator].join(f"({t} != 0)" for t in texts) + ")"


def to_text(expression: Expression) -> str:
    """The expression for people, in the infix notation of the kernel: `ceildiv(M, 128) * 2`."""
    if _is_int(expression):
        return str(expression)
    operator, operands = expression[0], expression[1:]
    if operator in ("dim", "param"):
        return str(operands[0])
    if operator in ("address", "min", "max", "ceildiv", "select"):
        return f"{operator}({', '.join(x if operator == 'address' else to_text(x) for x in operands)})"
    if operator == "not":
        return f"not {_operand(operands[0], _UNARY)}"
    level = _level(operator)
    comparison = operator in _COMPARISONS  # Python would chain what stands on its left
    texts = [_operand(x, level if n == 0 and not comparison else level + 1) for n, x in enumerate(operands)]
    return f" {_WORDS.get(operator, operator)} ".join(texts)


def _operand(expression: Expression, level: int) -> str:
    """The text, in parentheses if its operator binds less than `level`."""
    text = to_text(expression)
    return text if _is_int(expression) or _level(expression[0]) >= level else f"({text})"


def _level(operator: str) -> int:
    """How firmly an operator binds in a text for people."""
    found = (n for n, operators in enumerate(_BINDING) if operator in operators)
    return next(found, _UNARY)


def _short(node: object, limit: int = 80) -> str:
    text = repr(node)
    return text if len(text) <= limit else text[: limit - 3] + "..."
