"""Expressions as C++ text: the fewest parentheses, typed literals, conversions by the language's rules.

The header (`tl::`) supplies what C++ lacks: small floats (each operator of `tl::half_t` and its like rounds to its type,
as the language demands) and conversions that saturate. helpers.py has the rest: floor division, shifts by any amount.
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.ir import prim

from tile_compiler.cfamily.element_types import FLOAT32, UINT32, ElementType, split
from tile_compiler.cfamily.intervals import Intervals
from tile_compiler.cfamily.literals import (
    ATOM,
    CONDITIONAL,
    POSTFIX,
    UNARY,
    Text,
    float_literal,
    int_literal,
    string_literal,
)
from tile_compiler.cfamily.math_functions import BIT_COUNTS, FLOAT_FUNCTIONS, FLOAT_TESTS, function_name
from tile_compiler.errors import UnsupportedOnTarget
from tilelang.ops.dot2 import by_parts

LONG = 90  # columns of arguments that still stand in one line
CONTINUED = "    "
_OPERATORS: dict[type, tuple[str, int]] = {
    prim.Mul: ("*", 5),
    prim.Div: ("/", 5),
    prim.Mod: ("%", 5),
    prim.Add: ("+", 6),
    prim.Sub: ("-", 6),
    prim.LShift: ("<<", 7),
    prim.RShift: (">>", 7),
    prim.LT: ("<", 9),
    prim.LE: ("<=", 9),
    prim.GT: (">", 9),
    prim.GE: (">=", 9),
    prim.EQ: ("==", 10),
    prim.NE: ("!=", 10),
    prim.BitwiseAnd: ("&", 11),
    prim.BitwiseXor: ("^", 12),
    prim.BitwiseOr: ("|", 13),
    prim.And: ("&&", 14),
    prim.Or: ("||", 15),
}
_BITWISE_CALLS: dict[str, type] = {
    "bitwise_and": prim.BitwiseAnd,
    "bitwise_or": prim.BitwiseOr,
    "bitwise_xor": prim.BitwiseXor,
    "shift_left": prim.LShift,
    "shift_right": prim.RShift,
}
# Mixing these without parentheses is right and makes the reader look it up (and the compiler warn).
_CONFUSING = {"&", "|", "^", "<<", ">>"}
_MODULAR = (prim.Add, prim.Sub, prim.Mul)
_WRAPS = {"+", "-", "*", "<<"}


class Expressions:
    """Prints expressions. The subclass says how memory is named (`load`, `address`) and what a vector is in this place.

    `lane` is None for scalars; while a vector is printed element by element it is the text of the lane's number.
    """

    def __init__(self) -> None:
        self.intervals = Intervals()
        self.names: dict[Any, str] = {}
        self.constants: dict[Any, int] = {}  # loop variables of loops that run once
        self.thread_indices: set[Any] = set()
        self.lane: str | None = None
        self.helpers: set[str] = set()
        # Overflow of data wraps, which C++ says of unsigned numbers only; indices are taken not to overflow.
        self.reads = 0  # how many values from memory were printed so far: what holds one is data
        self.data: set[Any] = set()  # variables that hold data
        self.indexing = False  # inside an index
        self.fast = False  # approximations will do for functions and quotients of float32
        self.modular = False  # only the low bits of the result count, as it is stored: sums need no care

    # -- what the statements define ----------------------------------------------------------------------------------

    def load(self, node: Any) -> Text:
        raise NotImplementedError

    def address(self, node: Any) -> Text:
        raise NotImplementedError

    def extern(self, node: Any) -> Text:
        """A call of a header function: `tl::name<literals>(addresses, scalars)`."""
        arguments = [self.argument(a) for a in node.args[1:]]
        if str(node.args[0].value).startswith("tl::cp_async<") and arguments[-1] == "true":
            arguments.pop()  # the header's default
        if sum(map(len, arguments)) > LONG:  # one to a line
            separator = f",\n{CONTINUED}"
            return f"{node.args[0].value}(\n{CONTINUED}{separator.join(arguments)})", POSTFIX
        return f"{node.args[0].value}({', '.join(arguments)})", POSTFIX

    def vector_operand(self, node: Any) -> str:
        """The name of a `tl::vec` that holds a vector."""
        raise NotImplementedError

    # -- the entries -------------------------------------------------------------------------------------------------

    def text(self, node: Any) -> str:
        return self.expression(node)[0]

    def tight(self, node: Any, level: int) -> str:
        """The text, in parentheses if it binds more loosely than `level`."""
        text, own = self.expression(node)
        return text if own <= level else f"({text})"

    def expression(self, node: Any) -> Text:
        rule = _RULES.get(type(node))
        if rule is None:
            raise self.unsupported(node, f"no rule for {type(node).__name__}")
        if self.modular and type(node) not in _MODULAR:
            self.modular = False
            inside: Text = rule(self, node)
            self.modular = True
            return inside
        result: Text = rule(self, node)
        return result

    def unsupported(self, node: Any, why: str) -> UnsupportedOnTarget:
        shown = str(node).splitlines()[0][:200]
        return UnsupportedOnTarget(f"this cannot be printed as C++: {why}", at=node.span, found=shown)

    def type_of(self, node: Any) -> tuple[ElementType, int]:
        try:
            return split(str(node.ty))
        except KeyError:
            raise self.unsupported(node, f"C++ has no type {node.ty} here") from None

    def helper(self, name: str) -> str:
        """The name of a helper function, which the source then defines (helpers.py)."""
        self.helpers.add(name)
        return name

    def constant(self, node: Any) -> int | None:
        """The value of an integer that is known while printing."""
        if isinstance(node, prim.IntImm):
            return int(node.value)
        if not self.constants:
            return None
        if isinstance(node, ir.Var):
            return self.constants.get(node)
        if isinstance(node, (prim.Add, prim.Sub, prim.Mul)):
            return self._folded(node)
        return None

    def _folded(self, node: Any) -> int | None:
        a, b = self.constant(node.a), self.constant(node.b)
        if isinstance(node, prim.Mul) and 0 in (a, b):
            return 0
        if a is None or b is None:
            return None
        value = a * b if isinstance(node, prim.Mul) else a + b if isinstance(node, prim.Add) else a - b
        return value if -(2**31) <= value < 2**31 and str(node.ty) in ("int32", "int64") else None

    # -- leaves ------------------------------------------------------------------------------------------------------

    def _int(self, node: Any) -> Text:
        return int_literal(int(node.value), self.type_of(node)[0])

    def _float(self, node: Any) -> Text:
        return float_literal(float(node.value), self.type_of(node)[0])

    def _string(self, node: Any) -> Text:
        return string_literal(str(node.value)), ATOM

    def _var(self, node: Any) -> Text:
        value = self.constants.get(node)
        if value is not None:
            return int_literal(value, self.type_of(node)[0])
        self.reads += node in self.data
        name = self.names.get(node)
        if name is None:
            raise self.unsupported(node, f"{node.name} is not defined here")
        if self.lane is not None and self.type_of(node)[1] > 1:
            return f"{name}[{self.lane}]", POSTFIX
        return name, ATOM

    # -- operators ---------------------------------------------------------------------------------------------------

    def _binary(self, node: Any) -> Text:
        operator, level = _OPERATORS[type(node)]
        return self._infix(node, node.a, operator, level, node.b)

    def _infix(self, node: Any, a: Any, operator: str, level: int, b: Any) -> Text:
        if operator in "+-*":
            short = self._without_neutral(a, operator, b)
            if short is not None:
                return short
        before = self.reads
        text = f"{self._operand(a, operator, level, level)} {operator} {self._operand(b, operator, level, level - 1)}"
        if operator in _WRAPS:
            element = self.type_of(node)[0]
            if element.is_integer and element.bits < 32:  # C computes in int; the language in the type itself
                return f"({element.text})({text})", UNARY
            careless = self.indexing or self.modular or self.reads == before or operator == "<<"
            if element.kind == "int" and not careless and not self._fits(node, element):
                unsigned = f"(uint{element.bits}_t)"
                left, right = self.tight(a, UNARY), self.tight(b, UNARY)
                return f"({element.text})({unsigned}{left} {operator} {unsigned}{right})", UNARY
        return text, level

    def _quotient(self, node: Any) -> Text:
        element, lanes = self.type_of(node)
        if self.fast and element == FLOAT32 and lanes == 1:
            return f"tl::fast::divide({self.text(node.a)}, {self.text(node.b)})", POSTFIX
        return self._binary(node)

    def _fits(self, node: Any, element: ElementType) -> bool:
        (low, high), (least, greatest) = self.intervals(node), element.bounds or (0, 0)
        return least <= low and high <= greatest

    def _without_neutral(self, a: Any, operator: str, b: Any) -> Text | None:
        """`x + 0`, `x - 0`, `x * 1` as x (of integers; they arise from loops that run once)."""
        left, right = self.constant(a), self.constant(b)
        if left is None and right is None:
            return None
        neutral = 1 if operator == "*" else 0
        if right == neutral:
            return self.expression(a)
        if left == neutral and operator != "-":
            return self.expression(b)
        if left is not None and right is not None:
            value = left * right if operator == "*" else left + right if operator == "+" else left - right
            element = self.type_of(a)[0]
            low, high = element.bounds or (0, 0)
            return int_literal(value, element) if low <= value <= high else None
        if operator == "*" and 0 in (left, right):
            return int_literal(0, self.type_of(a)[0])
        return None

    def _operand(self, node: Any, operator: str, level: int, allowed: int) -> str:
        """An operand, in parentheses where C++ or the reader needs them."""
        text, own = self.expression(node)
        if own <= UNARY:
            return text
        if operator == "+" and own == 6 and self.type_of(node)[0].is_integer:
            return text  # a + (b + c): of integers, the order does not matter
        if own > allowed:
            return f"({text})"
        if operator == "*" and type(node) in (prim.FloorMod, prim.FloorDiv, prim.Mod, prim.Div):
            return f"({text})"
        comparison = operator in ("&&", "||") and own in (9, 10)
        mixed = own != level and (operator in _CONFUSING or operator == "||" or 7 <= own <= 13)
        return f"({text})" if mixed and not comparison else text

    def _shift(self, node: Any) -> Text:
        return self._shift_of(node, type(node), node.a, node.b)

    def _shift_of(self, node: Any, kind: type, a: Any, b: Any) -> Text:
        low, high = self.intervals(b)
        element = self.type_of(node)[0]
        if low >= 0 and high < element.bits:
            return self._infix(node, a, *_OPERATORS[kind], b)
        # C++ leaves shifts by the width or more undefined; the language gives 0 or the sign.
        name = "shift_left" if kind is prim.LShift else "shift_right"
        return f"{self.helper(name)}({self.text(a)}, {self.text(b)})", POSTFIX

    def _floor_div(self, node: Any) -> Text:
        return self._floor(node, "/", ">>", "floor_divide")

    def _floor_mod(self, node: Any) -> Text:
        return self._floor(node, "%", "&", "floor_remainder")

    def _floor(self, node: Any, plain: str, of_power: str, function: str) -> Text:
        """Plain division where C++ agrees (nothing negative); shift and mask for powers of two, which always floor."""
        element = self.type_of(node)[0]
        divisor = self.constant(node.b)
        both_positive = element.kind == "uint" or (
            self.intervals.non_negative(node.a) and self.intervals.non_negative(node.b)
        )
        if divisor is not None and divisor == 1:
            return self.expression(node.a) if plain == "/" else int_literal(0, element)
        power = divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0
        # The compiler knows the range of a thread's index, and no other's: there, plain operators cost nothing.
        if both_positive and (not power or (isinstance(node.a, ir.Var) and node.a in self.thread_indices)):
            left, right = self._operand(node.a, plain, 5, 5), self._operand(node.b, plain, 5, 4)
            return f"{left} {plain} {right}", 5
        if power and divisor is not None:
            number = divisor.bit_length() - 1 if plain == "/" else divisor - 1
            level = 7 if of_power == ">>" else 11
            right = int_literal(number, element)[0]
            return f"{self._operand(node.a, of_power, level, level)} {of_power} {right}", level
        return f"{self.helper(function)}({self.text(node.a)}, {self.text(node.b)})", POSTFIX

    def _extreme(self, node: Any) -> Text:
        """min and max of floats give the number where one side is NaN, as fminf does."""
        name = "min" if isinstance(node, prim.Min) else "max"
        element = self.type_of(node)[0]
        a, b = self.text(node.a), self.text(node.b)
        if element.kind == "float":
            return f"f{name}{'f' if element.bits == 32 else ''}({a}, {b})", POSTFIX
        if element.kind == "small float":
            narrow = f"f{name}f({self.as_float(node.a, element)}, {self.as_float(node.b, element)})"
            return f"{element.text}({narrow})", POSTFIX
        if element.bits >= 32:
            return f"{name}({a}, {b})", POSTFIX
        return f"({element.text}){name}((int){self.tight(node.a, UNARY)}, (int){self.tight(node.b, UNARY)})", UNARY

    def _not(self, node: Any) -> Text:
        return f"!{self.tight(node.a, UNARY)}", UNARY

    def _bitwise_not(self, node: Any) -> Text:
        return f"~{self.tight(node.a, UNARY)}", UNARY

    def _select(self, node: Any) -> Text:
        return self.choice(node.condition, node.true_value, node.false_value)

    def choice(self, condition: Any, yes: Any, no: Any) -> Text:
        known = self.constant(condition)
        if known is not None:
            return self.expression(yes if known else no)
        text = f"{self.tight(condition, 15)} ? {self.tight(yes, 15)} : {self.tight(no, CONDITIONAL)}"
        return text, CONDITIONAL

    def _cast(self, node: Any) -> Text:
        source, target = self.type_of(node.value)[0], self.type_of(node)[0]
        if source is target:
            return self.expression(node.value)
        known = self.constant(node.value)
        if known is not None and target.is_integer and self.lane is None:
            low, high = target.bounds or (0, 0)
            if low <= known <= high:
                return int_literal(known, target)
        return self.converted(node.value, source, target)

    def converted(self, node: Any, source: ElementType, target: ElementType) -> Text:
        """C's own conversion, except from floats to integers (the header saturates); small floats have constructors."""
        if target.kind == "bool":
            zero = "0" if source.is_integer else "0.0f" if source.bits <= 32 else "0.0"
            value = self.as_float(node, source) if source.kind == "small float" else self.tight(node, 9)
            return f"{value} != {zero}", 10
        if target.kind == "small float":
            return f"{target.text}({self.text(node)})", POSTFIX
        if target.is_integer and source.kind in ("float", "small float"):
            value = self.as_float(node, source) if source.kind == "small float" else self.text(node)
            return f"tl::to_integer<{target.text}>({value})", POSTFIX
        return f"({target.text}){self.tight(node, UNARY)}", UNARY

    def as_float(self, node: Any, source: ElementType) -> str:
        """A value as one of C's own floats."""
        return self.text(node) if source.kind == "float" else f"(float){self.tight(node, UNARY)}"

    # -- vectors -----------------------------------------------------------------------------------------------------

    def _ramp(self, node: Any) -> Text:
        if self.lane is None:
            raise self.unsupported(node, "a vector stands where a scalar belongs")
        stride = self.constant(node.stride)
        step = self.lane if stride == 1 else f"{self.lane} * {self.tight(node.stride, 4)}"
        if self.constant(node.base) == 0:
            return step, ATOM if stride == 1 else 5
        return f"{self.tight(node.base, 6)} + {step}", 6

    def broadcast(self, node: Any) -> Text:
        return self.expression(node.value)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, node: Any) -> Text:
        name = str(getattr(node.op, "name", "")).rpartition(".")[2]
        args = list(node.args)
        if name in ("call_extern", "call_pure_extern"):
            return self.extern(node)
        if name == "address_of":
            return self.address(args[0])
        if name == "buffer_data":
            return self.names[args[0]], ATOM
        if name == "if_then_else":
            return self.choice(*args)
        if name in ("shift_left", "shift_right"):
            return self._shift_of(node, _BITWISE_CALLS[name], *args)
        if name in _BITWISE_CALLS:
            return self._infix(node, args[0], *_OPERATORS[_BITWISE_CALLS[name]], args[1])
        if name == "bitwise_not":
            return f"~{self.tight(args[0], UNARY)}", UNARY
        if name == "reinterpret":
            return self._reinterpret(node, args[0])
        if name == "dot2":
            return self.expression(by_parts(node))
        return self._function(node, name, args)

    def argument(self, node: Any) -> str:
        """An argument of a header function; a vector is passed whole."""
        if self.lane is None and hasattr(node, "ty") and isinstance(node.ty, ir.PrimType) and "x" in str(node.ty):
            return self.vector_operand(node)
        return self.text(node)

    def _reinterpret(self, node: Any, value: Any) -> Text:
        target, lanes = self.type_of(node)
        source, source_lanes = self.type_of(value)
        half = self._half(value) if target.kind == "small float" and target.bits == 16 else None
        if half is not None:
            return f"tl::{half[0]}<{target.text}>({self.text(half[1])})", POSTFIX
        if lanes == source_lanes:
            return (
                self.expression(value)
                if source is target
                else (f"{self.helper('bit_cast')}<{target.text}>({self.text(value)})", POSTFIX)
            )
        operand = self.vector_operand(value) if source_lanes > 1 else self.text(value)
        if lanes == 1:
            return f"{self.helper('bit_cast')}<{target.text}>({operand})", POSTFIX
        whole = f"{self.helper('bit_cast')}<tl::vec<{target.text}, {lanes}>>({operand})"
        return f"{whole}[{self.lane or 0}]", POSTFIX

    def _half(self, value: Any) -> tuple[str, Any] | None:
        """(function, word) of uint16(word & 0xffff) and uint16(word >> 16). As functions the two stay halves of one
        register, on which instructions for pairs work; C++ compilers would compute each by itself."""
        if not isinstance(value, prim.Cast) or self.type_of(value.value) != (UINT32, 1):
            return None
        word = value.value
        kind: type | None = type(word)
        a, b = getattr(word, "a", None), getattr(word, "b", None)
        if isinstance(word, ir.Call):
            kind = _BITWISE_CALLS.get(str(getattr(word.op, "name", "")).rpartition(".")[2])
            a, b = (*word.args, None, None)[:2]
        if kind is prim.BitwiseAnd and self.constant(b) == 0xFFFF:
            return "low_half", a
        return ("high_half", a) if kind is prim.RShift and self.constant(b) == 16 else None

    def _function(self, node: Any, name: str, args: list[Any]) -> Text:
        element = self.type_of(args[0])[0] if args and hasattr(args[0], "ty") else FLOAT32
        if name in BIT_COUNTS:
            return self._bit_count(name, args[0], element)
        if name == "abs" and element.is_integer:
            return f"abs({self.text(args[0])})", POSTFIX
        wide = element if element.kind == "float" else FLOAT32
        texts = [self.as_float(a, element) for a in args]
        if name in FLOAT_TESTS:
            return f"{name}({texts[0]})", POSTFIX
        one = float_literal(1.0, wide)[0]
        if name == "sigmoid":
            inner = self.tight(args[0], POSTFIX) if element.kind == "float" else f"({texts[0]})"
            below = f"{one} + {function_name('exp', wide.bits, fast=self.fast)}(-{inner})"
            text, level = f"{one} / ({below})", 5
            if self.fast and wide.bits == 32:
                text, level = f"tl::fast::reciprocal({below})", POSTFIX
        elif name in FLOAT_FUNCTIONS:
            text, level = f"{function_name(name, wide.bits, fast=self.fast)}({', '.join(texts)})", POSTFIX
        else:
            raise self.unsupported(node, f"no C++ for the call of {name}")
        return (text, level) if element.kind == "float" else (f"{element.text}({text})", POSTFIX)

    def _bit_count(self, name: str, value: Any, element: ElementType) -> Text:
        narrow, wide = BIT_COUNTS[name]
        if element.bits == 64:
            return f"{wide}({self.text(value)})", POSTFIX
        unsigned = f"(uint{element.bits}_t){self.tight(value, UNARY)}" if element.bits < 32 else self.text(value)
        count = f"{narrow}({unsigned})"
        extra = 32 - element.bits
        return (f"{count} - {extra}", 6) if name == "clz" and extra else (count, POSTFIX)


_RULES: dict[type, Any] = {
    **dict.fromkeys(_OPERATORS, Expressions._binary),
    prim.LShift: Expressions._shift,
    prim.RShift: Expressions._shift,
    prim.Div: Expressions._quotient,
    prim.FloorDiv: Expressions._floor_div,
    prim.FloorMod: Expressions._floor_mod,
    prim.Min: Expressions._extreme,
    prim.Max: Expressions._extreme,
    prim.Not: Expressions._not,
    prim.BitwiseNot: Expressions._bitwise_not,
    prim.Select: Expressions._select,
    prim.Cast: Expressions._cast,
    prim.Ramp: Expressions._ramp,
    prim.Broadcast: lambda printer, node: printer.broadcast(node),
    prim.IntImm: Expressions._int,
    prim.FloatImm: Expressions._float,
    ir.StringImm: Expressions._string,
    ir.Var: Expressions._var,
    ir.Call: Expressions._call,
    ir.TensorLoad: lambda printer, node: printer.load(node),
}
