"""Prove the absence of races on shared memory by enumerating the threads of a block over the final form.

Shares nothing with `insert_barriers`: addresses are evaluated with numpy for every thread, statement by statement.
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import shape_variables
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.enumeration import Block, Scenario
from tilelang.ir import tile_ir

SIZES = (1, 200)  # of dynamic dimensions and scalars: loops of one and of several iterations


def check_synchronization(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Raise `SharedMemoryRace`, naming both lines, where two threads can meet without a barrier between them.

    before, after: the same function.

    Conditions and loop extents that memory decides are taken both ways. Three verdicts: refuted is an error; an
    address that cannot be evaluated counts as all of its buffer; barriers of a part of the block are the user's own
    synchronization and are assumed to be right (the report says so).
    """
    for kernel in tile_ir.kernels(func):
        names = _scalars(func)
        runs = [Scenario(size, taken) for size in (SIZES if names else SIZES[-1:]) for taken in (True, False)]
        met_unknown = True
        for scenario in runs:
            if scenario.taken or met_unknown:  # the second of each pair differs only where memory decided something
                block = Block(func, kernel, ctx, names, scenario)
                block.run()
                met_unknown = block.met_unknown
    return func


def _scalars(func: tir.PrimFunc) -> list[Any]:
    """Dynamic dimensions and scalar parameters."""
    found = list(shape_variables(func))
    found += [p for p in func.params if isinstance(p, ir.Var) and not tile_ir.is_buffer(p) and p not in found]
    return found
