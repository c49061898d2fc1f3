"""A traced function as text for another process, and back. Spans come along, so errors there show the user's line."""

from __future__ import annotations

from typing import Any

import tvm

from tilelang.ir import tile_ir


def dumps(func: Any) -> str:
    """JSON of TVM's own form."""
    return str(tvm.ir.save_json(func))


def loads(text: str) -> Any:
    """The function that `dumps` was given, in a process that may have met none of our operators yet."""
    from tilelang.ops import OPERATORS

    for name in OPERATORS:
        tile_ir.operator(name)
    return tvm.ir.load_json(text)
