"""Do the iterations of a parallel nest write one element with different values?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.context import Report
from tile_compiler.errors import ParallelConflict
from tile_compiler.loops.affine import depends, linear
from tile_compiler.loops.lanes import private_buffers
from tilelang.ir import tile_ir


def check_conflicts(nest: tile_ir.ParallelNest, report: Report) -> None:
    """Raise `ParallelConflict` for certain conflicts; note in the report what cannot be decided."""
    private = set(private_buffers(nest.body))
    bound: dict[Any, Any] = {n.var: n.value for n in tile_ir.walk(nest.body, tir.Bind)}
    _check(nest.body, nest, private, bound, False, report)


def _check(
    body: Any, nest: tile_ir.ParallelNest, private: set[Any], bound: dict[Any, Any], maybe: bool, report: Report
) -> None:
    for s in tile_ir.statements(body):
        if isinstance(s, tir.IfThenElse):
            for case in (s.then_case, s.else_case):
                if case is not None:
                    _check(
                        case, nest, private, bound, maybe or _varies(s.condition, set(nest.loop_vars), bound), report
                    )
        elif isinstance(s, (tir.For, tir.While, tir.AttrStmt)):
            _check(s.body, nest, private, bound, maybe, report)
        elif isinstance(s, tir.BufferStore) and s.buffer not in private:
            _check_store(s, nest, bound, maybe, report)


def _check_store(store: Any, nest: tile_ir.ParallelNest, bound: dict[Any, Any], maybe: bool, report: Report) -> None:
    if str(store.buffer.scope()) in tile_ir.PRIVATE:
        return  # a private buffer from outside the nest is a temporary of the iteration
    indices = tile_ir.sequence([tir.Evaluate(i) for i in store.indices])
    for var, extent in zip(nest.loop_vars, nest.extents):
        size = tile_ir.static(extent)
        if size is not None and size <= 1:
            continue
        if _varies(indices, {var}, bound):
            if not _affine(store.indices, var):
                report.assume(
                    store.span, f"{store.buffer.name}: different iterations of {var.name} write different elements"
                )
            continue
        reads_itself = any(n.source.same_as(store.buffer) for n in tile_ir.walk(store.value, ir.TensorLoad))
        if not _varies(store.value, {var}, bound) and not reads_itself:
            continue
        if maybe or size is None:
            report.assume(store.span, f"at most one iteration of {var.name} writes an element of {store.buffer.name}")
            continue
        raise ParallelConflict(
            f"iterations of T.Parallel write the same element of {store.buffer.name} with different values",
            at=store.span or nest.span,
            found=f"the index does not depend on loop variable {var.name} ({size} iterations), the value does",
            expected="each iteration writes its own elements",
            repair=f"reduce with T.reduce_*, use T.atomic_add, or make {var.name} a T.serial loop inside the nest",
        )
    _check_together(store, nest, bound, maybe, report)


def _check_together(store: Any, nest: tile_ir.ParallelNest, bound: dict[Any, Any], maybe: bool, report: Report) -> None:
    """Each loop variable alone reaches different elements; do all of them together (not so in `A[i + j]`)?

    Certain where each has an index of its own; else decided by evaluating the index map over the nest, for indices that
    are linear with constant coefficients.
    """
    loops = [(v, e) for v, e in zip(nest.loop_vars, nest.extents) if tile_ir.static(e) != 1]
    if len(loops) < 2:
        return
    sizes = [tile_ir.static(e) for _, e in loops]
    coefficients = [[_coefficient(index, v) for v, _ in loops] for index in store.indices]
    if _separate(coefficients):
        return
    names = " and ".join(str(v.name) for v, _ in loops)
    known = [c for row in coefficients for c in row]
    fixed = [size for size in sizes if size is not None]
    total = math.prod(fixed)
    if len(fixed) < len(sizes) or None in known or total > _MOST_POINTS:
        report.assume(store.span, f"{store.buffer.name}: different iterations of {names} write different elements")
        return
    grids = np.indices(fixed).reshape(len(fixed), -1)
    places = np.array(coefficients, dtype=np.int64) @ grids
    if len(np.unique(places, axis=1)[0]) == total:
        return
    if maybe or not _varies(store.value, {v for v, _ in loops}, bound):
        report.assume(
            store.span, f"iterations of {names} that write one element of {store.buffer.name} write one value"
        )
        return
    order = np.lexsort(places)
    same = next(k for k in range(1, total) if (places[:, order[k]] == places[:, order[k - 1]]).all())
    first, second = (tuple(int(x) for x in grids[:, order[k]]) for k in (same - 1, same))
    raise ParallelConflict(
        f"iterations of T.Parallel write the same element of {store.buffer.name} with different values",
        at=store.span or nest.span,
        found=f"({', '.join(str(v.name) for v, _ in loops)}) = {first} and {second} have the same index",
        expected="each iteration writes its own elements",
        repair="reduce with T.reduce_*, use T.atomic_add, or make one of the loops a T.serial loop inside the nest",
    )


_MOST_POINTS = 1 << 20  # index maps up to this size are evaluated (about 50 ms); larger nests are noted in the report


def _coefficient(index: Any, var: Any) -> int | None:
    """The constant factor of `var` in `index`; None where the index is not linear in it."""
    if not depends(index, {var}):
        return 0
    found = linear(index, var)
    return None if found is None else tile_ir.static(found[0])


def _separate(coefficients: list[list[int | None]]) -> bool:
    """Whether each variable has an index of its own, which alone keeps its iterations apart."""
    owned = set()
    for row in coefficients:
        present = [n for n, c in enumerate(row) if c != 0]
        if len(present) == 1 and row[present[0]] is not None:
            owned.add(present[0])
    return len(owned) == len(coefficients[0])


def _varies(node: Any, variables: set[Any], bound: dict[Any, Any]) -> bool:
    """Whether `node` mentions one of `variables`, directly or through a Bind."""
    if depends(node, variables):
        return True
    return any(n in bound and _varies(bound[n], variables, bound) for n in tile_ir.walk(node, ir.Var))


def _affine(indices: Any, var: Any) -> bool:
    return any((found := linear(i, var)) is not None and found[0] != 0 for i in indices)
