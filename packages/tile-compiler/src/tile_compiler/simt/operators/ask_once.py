"""Nests that stand under a condition which few of a thread's registers decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import is_fragment, load
from tile_compiler.simt.terms import Ints
from tilelang.ir import tile_ir

Table = Callable[[Any], Ints | None]

WORTH = 8  # steps of the nest for each set of registers that the condition reads


def asked_once(nest: tile_ir.ParallelNest, steps: int, table: Table, low: Lowering) -> Any | None:
    """Whether a thread has anything to do in its `steps` of a nest whose body is one `if`; None where that saves nothing.
    `table` has the register that a load of a fragment reads in each step.

    before:     for i, j in T.parallel(64, 64): if r[i] != 1: o[i, j] *= r[i]
    after:      if r[0] != 1 or r[1] != 1:
                    for c in unroll(32): if r[c % 4 // 2] != 1: o[c] *= r[c % 4 // 2]

    So warps whose rows need nothing pass by: of attention's output, those whose maximum did not move.
    """
    body = tile_ir.statements(nest.body)
    if len(body) != 1 or not isinstance(body[0], tir.IfThenElse) or body[0].else_case is not None:
        return None
    condition = body[0].condition
    read = list(tile_ir.walk(tir.Evaluate(condition), ir.TensorLoad))
    tables = [table(n) if is_fragment(n.source) else None for n in read]
    if not read or any(t is None for t in tables):
        return None
    sets = np.unique(np.stack([t for t in tables if t is not None]), axis=1).T
    if WORTH * len(sets) > steps:
        return None

    def registers(numbers: Any) -> Any:
        places = iter([load(low.registers(n.source), int(r)) for n, r in zip(read, numbers)])
        return tvm_ffi.structural_map(condition, (ir.TensorLoad, lambda _: next(places)))

    asked = [registers(numbers) for numbers in sets]
    if any(v in nest.loop_vars for part in asked for v in tile_ir.walk(tir.Evaluate(part), ir.Var)):
        return None
    question = asked[0]
    for part in asked[1:]:
        question = tir.Or(question, part)
    return question
