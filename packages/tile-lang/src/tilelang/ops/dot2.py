"""`T.dot2`: the scalar product of two pairs of halves, an expression.

`tl.dot2(a, b, c)` with attr `dtype` (bfloat16 or float16): a and b are words of 32 bits (uint32) that hold two numbers each, the
first in the low half; the result is c + a[0] * b[0] + a[1] * b[1], float32.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir import tile_ir

DOT2 = "tl.dot2"
DTYPES = ("bfloat16", "float16")


def dot2(a: Any, b: Any, c: Any, dtype: str) -> Any:
    """The call; vectors of words and numbers as well, lane by lane."""
    tile_ir.operator(DOT2, pure=True, by_lanes=True)
    return tile_ir.call(DOT2, [a, b, c], {"dtype": dtype}, dtype=str(c.ty))


def by_parts(call: Any) -> Any:
    """The same by a target's own arithmetic, for those without such an instruction."""
    a, b, c = call.args
    dtype = str(tile_ir.attrs_of(call)["dtype"])
    for x, y in zip(_parts(a, dtype), _parts(b, dtype)):
        c = c + x * y
    return c


def _parts(word: Any, dtype: str) -> list[Any]:
    """The two numbers of a word, float32."""
    from tvm import tirx as tir
    from tvm.ir import prim

    _, x, lanes = str(word.ty).partition("x")

    def like(value: int) -> Any:
        number = tir.const(value, "uint32")
        return prim.Broadcast(number, int(lanes)) if x else number

    halves = (word & like(0xFFFF), prim.RShift(word, like(16)))
    codes = (prim.Cast(f"uint16{x}{lanes}", half) for half in halves)
    return [prim.Cast(f"float32{x}{lanes}", tir.reinterpret(f"{dtype}{x}{lanes}", code)) for code in codes]
