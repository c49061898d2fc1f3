"""How fine the shadow of shared memory has to be: what statements access at once are whole pieces of this size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

LARGEST = 16  # bytes: of rows that instructions for matrices and bulk copies move, and of the widest vectors
_COPIES = ("tl::cp_async<", "tl::load_to_lds<")  # of so many bytes by each thread


class TooCoarse(Exception):
    """An access that is not of whole pieces, as a vector that does not lie at a multiple of its size."""


def piece(body: Any, shared: Collection[Any]) -> int:
    """The bytes, a power of two, of which every access to `shared` buffers has whole ones if vectors are aligned."""
    found = [LARGEST]
    loads: Counter[int] = Counter()
    pointed: Counter[int] = Counter()  # of these only the address is taken
    sizes: dict[int, int] = {}
    for node in tile_ir.walk(body, ir.TensorLoad, tir.BufferStore, ir.Call):
        if isinstance(node, tir.BufferStore):
            if node.buffer in shared:
                found.append(_size(node.buffer, node.indices))
        elif isinstance(node, ir.TensorLoad):
            if node.source in shared:
                loads[hash(node)] += 1
                sizes[hash(node)] = _size(node.source, node.indices)
        elif is_call(node, "tirx.address_of") and isinstance(node.args[0], ir.TensorLoad):
            pointed[hash(node.args[0])] += 1
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            found += [_size(target.source, ())] if target.source in shared else []
        elif is_call(node, "tirx.call_extern") and str(node.args[0].value).startswith(_COPIES):
            name = str(node.args[0].value)
            found.append(int(name[name.index("<") + 1 : -1]))
    found += [sizes[number] for number, count in loads.items() if count > pointed[number]]
    return math.gcd(*found)


def _size(buffer: Any, indices: Any) -> int:
    """The bytes of an access to a buffer, of a vector where the last index is one."""
    vector = len(indices) > 0 and isinstance(indices[-1], ir.prim.Ramp)
    return max(1, dtype_of(tile_ir.dtype_name(buffer)).bits * (int(indices[-1].lanes) if vector else 1) // 8)
