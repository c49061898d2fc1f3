"""The interpreter: the meaning of tile IR, executed with numpy, slowly and obviously.

`run` executes a traced function in place. The rest is one idea per file: `machine` (statements and operators),
`expressions`, `access` (bounds, initialization, races), `lanes`, `memory`, `numerics` (element types),
`arguments`, `extern`. It shares nothing with the compiler: the two can only agree by both being right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilelang.interpreter.arguments import bind_arguments
from tilelang.interpreter.errors import InterpreterError
from tilelang.interpreter.extern import Pointer, externs
from tilelang.interpreter.lanes import Lanes
from tilelang.interpreter.machine import Emit, Hook, Machine
from tilelang.ir import tile_ir

__all__ = ["InterpreterError", "Pointer", "bind_dims", "externs", "run"]


def run(
    func: Any,
    arguments: Sequence[Any],
    dims: Mapping[str, int] | None = None,
    *,
    hook: Hook | None = None,
    blocks: Iterable[int | tuple[int, ...]] | None = None,
    output: Emit | None = None,
) -> None:
    """Execute a tile-level `PrimFunc` on numpy arrays, in place: its kernels one after the other, block by block.

    `arguments` has one entry per parameter of the user's function: an array (packed bytes for types under a
    byte; strided views are fine) or a scalar. Dynamic dimensions are found from the shapes; `dims` adds those
    that cannot be. `hook(operator, block, buffers)` is called before each tile operator and parallel loop with
    the live buffers by name: `hook=lambda *_: breakpoint()` stops there. `blocks` restricts every kernel to
    some block coordinates. `output` receives the lines of `T.print` (default: print).
    """
    host = Machine(Lanes("host", ()), None, hook, output or print)
    chosen = None if blocks is None else frozenset(b if isinstance(b, tuple) else (b,) for b in blocks)
    with np.errstate(all="ignore"):
        bind_arguments(host, func, arguments, dims or {})
        for stmt in tile_ir.statements(func.body):
            kernel = tile_ir.as_kernel(stmt)
            if kernel is None:
                host.execute(stmt)
            else:
                host.launch(kernel, chosen)


def bind_dims(func: Any, arguments: Sequence[Any]) -> dict[str, int]:
    """The dynamic dimensions of a call, by name, solved from the shapes and strides of its arrays."""
    host = Machine(Lanes("host", ()), None, None, print)
    return {str(var.name): size for var, size in bind_arguments(host, func, arguments, {}).items()}
