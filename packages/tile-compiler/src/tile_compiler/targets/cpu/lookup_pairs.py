"""Two elements of 16 bits of one table side by side in a word, as one look-up.

    cast(table[word >> s & 15]) | cast(table[word >> s + 16 & 15]) << 16    ->    vpermw of the table by the halves of word >> s

What either half of `word >> s` has in its low bits is the index of one element: as a vector of twice as many halves the word is
the vector of indices, and what is found is the vector of words. See `lookup.write_halves`. It must stand there as one
expression: what a kernel gives a name is a place in memory by now.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm.ir import prim

from tilelang.ir.dtypes import dtype_of as dtype_facts

from .expressions import dtype_of, scalar_of


def pair_of_lookups(node: Any) -> tuple[Any, Any, int] | None:
    """(table, word >> s, entries that an index can point to) of such an expression, of any lanes; None for others."""
    parts = [(a, b.a) for a, b in ((node.a, node.b), (node.b, node.a)) if _shifts(b) == 16]
    if not parts or scalar_of(dtype_of(node))[0] != "uint32":
        return None
    loads = [_widened_load(part) for part in parts[0]]
    if any(load is None for load in loads) or not loads[0].source.same_as(loads[1].source):
        return None
    low_index, high_index = (_masked(load.indices[0]) for load in loads)
    if low_index is None or high_index is None or low_index[1] != high_index[1]:
        return None
    (low, mask), (high, _) = low_index, high_index
    word, by = _shifted(low)
    word_too, by_too = _shifted(high)
    if by_too != by + 16 or scalar_of(dtype_of(word))[0] != "uint32" or not _same(word, word_too):
        return None
    return loads[0].source, low, mask + 1


def _same(a: Any, b: Any) -> bool:
    """Whether two expressions are equal. Loads of one statement are of the same moment."""
    return bool(a.same_as(b) or tvm_ffi.structural_equal(a, b))


def _number(node: Any) -> int | None:
    value = node.value if isinstance(node, prim.Broadcast) else node
    return int(value.value) if isinstance(value, prim.IntImm) else None


def _shifts(node: Any) -> int | None:
    """By how many bits a value is shifted up."""
    return _number(node.b) if isinstance(node, prim.LShift) else None


def _widened_load(node: Any) -> Any:
    """The load of an element of 16 bits that a word is made of."""
    load = node.value if isinstance(node, prim.Cast) else None
    return load if isinstance(load, ir.TensorLoad) and scalar_of(dtype_of(load))[0] == "uint16" else None


def _masked(index: Any) -> tuple[Any, int] | None:
    """(value, mask) of an index that is the low bits of a value."""
    while isinstance(index, prim.Cast):
        kind = dtype_facts(scalar_of(dtype_of(index))[0])
        if kind.is_float or kind.bits < 8:  # which would not hold it
            return None
        index = index.value
    mask = _number(index.b) if isinstance(index, prim.BitwiseAnd) else None
    return None if mask is None or mask & (mask + 1) else (index.a, mask)


def _shifted(value: Any) -> tuple[Any, int]:
    """(word, bits by which it is shifted down)."""
    by = _number(value.b) if isinstance(value, prim.RShift) else None
    return (value, 0) if by is None else (value.a, by)
