"""What a kernel's accesses cost: the addresses of the final form, evaluated for all threads, loops and blocks at once.

Every loop, the grid and the threads are axes of numpy arrays: an index is evaluated once, over the axes that it depends
on, and what it costs there is multiplied by the others. Nothing is guessed where sizes are known; `exact` is false
where memory decides a condition, a dimension is dynamic, or only some of many blocks or iterations were evaluated.

Sectors are 32 bytes of global memory, wavefronts the turns of the 32 banks of shared memory (CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory", "Shared Memory and Memory Banks").
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import where
from tile_compiler.ranges import shape_variables
from tile_compiler.rewrite import is_call
from tile_compiler.signature import TENSOR_MAP
from tile_compiler.simt.box_traffic import BOX_COPIES, BULK_COPIES, BoxedTensor
from tile_compiler.simt.memory_turns import BANK_BYTES, BANKS, SECTOR, collapsed, distinct, wavefronts
from tile_compiler.simt.operators.nests import is_global, is_shared
from tile_compiler.simt.thread_values import Array, ThreadValues, Unknown
from tile_compiler.simt.traffic import Access, Traffic
from tile_compiler.simt.wgmma_calls import wgmma_call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

MANY_BLOCKS, MANY_ITERATIONS = 64, 512  # of more, the first and the last stand for all
DYNAMIC = 1024  # what a dynamic dimension is taken to be
_SHAPE = re.compile(r"_m?(\d+)[nx](\d+)[kx](\d+)_")


def count_traffic(func: tir.PrimFunc, kernel: tile_ir.Kernel, warp: int = 32, cluster: int = 1) -> Traffic:
    """The traffic of one kernel of a lowered function; `cluster`: blocks that run together. Without blocks there is none."""
    counter = _Counter(func, kernel, warp, cluster)
    if counter.blocks:
        counter.statement(kernel.body)
    return counter.finished()


@dataclass
class _Axis:
    """`size` points, each of which stands for `weights` of them (None: for itself)."""

    size: int
    weights: Array | None = None


class _Counter(ThreadValues):
    """Axis 0 from the right are the threads, then the grid, then loops from the outermost in."""

    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, warp: int, cluster: int) -> None:
        super().__init__(int(kernel.num_threads or 1))
        self.warp, self.cluster = warp, cluster
        self.axes = [_Axis(self.threads)]
        self.traffic = Traffic()
        self.found: dict[tuple[Any, ...], Access] = {}
        self.counts: dict[str, float] = defaultdict(float)
        self.mask = np.ones(1, bool)
        self.sure = True  # whether the conditions on the way here are known
        rest = self.lane
        for var, extent in kernel.threads:
            self.values[var] = rest % int(extent)
            rest = rest // int(extent)
        for name in shape_variables(func):
            self.values[name] = np.asarray([DYNAMIC])
            self.traffic.exact = False
        for param in func.params:
            if isinstance(param, ir.Var) and not tile_ir.is_buffer(param) and param not in self.values:
                self.values[param] = np.asarray([DYNAMIC])
                self.traffic.exact = False
        self.maps: dict[Any, Any] = {}
        for stmt in tile_ir.statements(func.body):
            if isinstance(stmt, tir.Bind) and is_call(stmt.value, TENSOR_MAP):
                self.maps[stmt.var] = stmt.value
            elif isinstance(stmt, tir.Bind):
                self._bind(stmt)
        self.blocks = math.prod(self._extent(extent) for _, extent in kernel.grid)
        for var, extent in kernel.grid:
            self._push(var, np.asarray(0), self._extent(extent), 2 if self.blocks > MANY_BLOCKS else MANY_BLOCKS)

    def finished(self) -> Traffic:
        self.traffic.accesses = list(self.found.values())
        self.traffic.instructions = {name: round(count) for name, count in self.counts.items() if name[0] != "="}
        self.traffic.flops = round(self.counts["=flops"])
        self.traffic.barriers = round(self.counts["=barriers"])
        self.traffic.exact &= all(a.exact for a in self.traffic.accesses)
        return self.traffic

    # -- axes -------------------------------------------------------------------------------------------------------

    def _extent(self, extent: Any) -> int:
        try:
            return int(self.value(extent).max())
        except Unknown:
            self.traffic.exact = False
            return 1

    def _push(self, var: Any, low: Array, size: int, limit: int) -> Array:
        """A new axis for a variable that takes `size` values from `low` on; its points, counted from 0.

        Of more than `limit` values the first ones and the last stand for all.
        """
        if size > limit:  # which may be more than memory holds, where a product of sizes is not known
            points = np.append(np.arange(limit - 1), size - 1)
            weights = np.append(np.full(limit - 1, (size - 1) / (limit - 1)), 1.0)
        else:
            points, weights = np.arange(size), None
        numbers = points.reshape(-1, *[1] * len(self.axes))
        self.axes.append(_Axis(len(points), weights))
        self.values[var] = low + numbers
        return numbers

    def _weights(self, shape: tuple[int, ...]) -> tuple[Array, bool]:
        """For each point of the axes but the threads': how many it stands for; whether sampled axes are among them."""
        weights, sampled = np.ones(shape[:-1]), False
        for number, axis in enumerate(self.axes[1:], 1):
            present = number < len(shape) and shape[-1 - number] == axis.size and axis.size > 1
            if not present:
                weights = weights * (axis.size if axis.weights is None else axis.weights.sum())
            elif axis.weights is not None:
                sampled = True
                weights = weights * axis.weights.reshape(-1, *[1] * (number - 1))
        return weights, sampled

    def _warps(self, values: Array, shape: tuple[int, ...], fill: Any) -> Array:
        """`values` over `shape`, as rows of one warp each."""
        rows = np.broadcast_to(values, shape).reshape(-1, self.threads)
        missing = -self.threads % self.warp
        if missing:
            rows = np.concatenate([rows, np.full((len(rows), missing), fill, rows.dtype)], axis=1)
        return rows.reshape(-1, self.warp)

    def _sums(self, place: Array, costs: Callable[[Array, Array], tuple[Any, ...]]) -> list[int]:
        """Each cost, of the warps' requests at the addresses `place` where the mask holds, over all axes.

        `costs(addresses, active)` gives arrays with one entry for each row, which is a warp.
        """
        mask = self.mask if self.mask.ndim else self.mask.reshape(1)
        uniform = mask.shape[-1] == 1  # a condition on blocks and loops alone only weighs what the threads cost
        inside = np.ones(1, bool) if uniform else mask
        shape = np.broadcast_shapes(place.shape, inside.shape, (self.threads,))
        found = costs(self._warps(place, shape, 0), self._warps(inside, shape, False))
        outside = mask if uniform else np.ones(1, bool)
        whole = np.broadcast_shapes(shape, outside.shape)
        weights = self._weights(whole)[0] * np.broadcast_to(outside, (*whole[:-1], 1))[..., 0]
        return [round(float((each.reshape(*shape[:-1], -1).sum(axis=-1) * weights).sum())) for each in found]

    def _ways(self) -> tuple[int, int]:
        """How many threads, and how many warps, come by here."""
        threads, warps = self._sums(np.asarray([0]), lambda _, active: (active.sum(axis=1), active.any(axis=1)))
        return threads, warps

    # -- statements -------------------------------------------------------------------------------------------------

    def statement(self, node: Any) -> None:
        """Count what a statement does."""
        self.seen: set[Any] = set()
        method = _STATEMENTS.get(type(node).__name__)
        if method is not None:
            method(self, node)

    def _sequence(self, node: Any) -> None:
        for part in node.seq:
            self.statement(part)

    def _scope(self, node: Any) -> None:
        self.statement(node.body)

    def _bind(self, node: Any) -> None:
        self.seen = set()
        try:
            self.values[node.var] = self.value(node.value)
        except Unknown as unknown:
            self.values[node.var] = unknown
        self._expression(node.value, node)

    def _store(self, node: Any) -> None:
        # A choice between rows is a branch in the text; inside other arithmetic each lane chooses.
        chosen = is_call(node.value, "prim.if_then_else", "tirx.if_then_else")
        self._expression(node.value, node, rows=chosen or not _has_choice(node.value))
        for index in node.indices:
            self._expression(index, node)
        self._access("write", node.buffer, node.indices, node)

    def _evaluate(self, node: Any) -> None:
        self._expression(node.value, node)

    def _for(self, node: Any) -> None:
        self._expression(node.extent, node)
        outer, sure = self.mask, self.sure
        try:
            low, extent = self.value(node.min), self.value(node.extent)
        except Unknown:
            low, extent, self.sure = np.asarray(0), np.asarray([1]), False
        size = int(extent.max(initial=0))
        if size > 0:
            numbers = self._push(node.loop_var, low, size, MANY_ITERATIONS)
            if extent.size > 1:
                self.mask = outer & (numbers < extent)
            self.statement(node.body)
            self.axes.pop()
        self.mask, self.sure = outer, sure

    def _while(self, node: Any) -> None:
        sure, self.sure = self.sure, False
        self._expression(node.condition, node)
        self.statement(node.body)
        self.sure = sure

    def _if(self, node: Any) -> None:
        self._expression(node.condition, node)
        self._either(node.condition, node.then_case, node.else_case, self.statement)

    def _either(self, condition: Any, yes: Any, no: Any, visit: Any) -> None:
        """Both sides of a condition, each where it is taken; everywhere if that is not known."""
        outer, sure = self.mask, self.sure
        try:
            holds = self.value(condition).astype(bool)
        except Unknown:
            holds, self.sure = None, False
        for part, sign in ((yes, True), (no, False)):
            if part is not None:
                self.mask = outer if holds is None else outer & (holds == sign)
                if self.mask.any():
                    visit(part)
        self.mask, self.sure = outer, sure

    # -- expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: Any, stmt: Any, rows: bool = True) -> None:
        """Count the accesses and the arithmetic of an expression. `rows`: vectors of memory are read as a whole."""
        if isinstance(node, ir.TensorLoad):
            for index in node.indices:
                self._expression(index, stmt)
            self._access("read", node.source, node.indices, stmt, rows)
        elif is_call(node, "prim.if_then_else", "tirx.if_then_else"):
            self._expression(node.args[0], stmt)
            self._either(node.args[0], node.args[1], node.args[2], lambda part: self._expression(part, stmt, rows))
        elif is_call(node, "tirx.call_extern"):
            self._extern(node, stmt)
        else:
            self._arithmetic(node)
            for part in _operands(node):
                self._expression(part, stmt, rows)

    def _arithmetic(self, node: Any) -> None:
        dtype = str(getattr(node, "ty", ""))
        operation = type(node).__name__ in _ARITHMETIC or (isinstance(node, ir.Call) and _operands(node))
        if operation and dtype.startswith(("float", "bfloat")):
            lanes = int(dtype.rpartition("x")[2]) if "x" in dtype else 1
            self.counts["=flops"] += self._ways()[0] * lanes

    def _extern(self, node: Any, stmt: Any) -> None:
        name = str(node.args[0].value)
        _, warps = self._ways()
        short = name.removeprefix("tl::").partition("<")[0]
        self.counts[short] += warps
        if short in _BARRIERS:
            self.counts["=barriers"] += warps / self._warps_at(short, name, node)
        wgmma = wgmma_call(node)
        shape = _SHAPE.search(name) if short.startswith(("mma", "mfma")) else None
        if shape or wgmma:
            operand = (short.split("_") + [""] * 3)[3]
            products = warps // 4 * 64 * wgmma.n * wgmma.k if wgmma else 0
            flops = 2 * (warps * math.prod(int(s) for s in shape.groups()) if shape else products)
            self.traffic.tensor_flops[operand] = self.traffic.tensor_flops.get(operand, 0) + flops
        if short in BOX_COPIES:
            self._box(short, node, stmt)
        self.traffic.exact &= short not in BULK_COPIES and short != "add_remote"  # whose reads are another block's
        for position, argument in enumerate(node.args[1:]):
            if not is_call(argument, "tirx.address_of", "tirx.buffer_data"):
                self._expression(argument, stmt)
                continue
            target = argument.args[0]
            if not isinstance(target, ir.TensorLoad):
                continue
            kind, size = _called(short, name, position)
            if not kind:
                continue
            outer = self.mask
            if kind in ("ldmatrix", "stmatrix"):
                self.mask = outer & (self.lane % self.warp < 8 * int(short[len("ldmatrix_x")]))
            elif kind == "read" and short == "cp_async":  # zeros are not read
                self.mask = self._where(node.args[-1])
            count = max(1, size // _itemsize(target.source)) if size else 1
            if kind == "atomic" and short.endswith(("_x2", "_x4")):
                count = int(short[-1])
            by = short if short in _ASYNCHRONOUS else ""
            self._access(kind, target.source, target.indices, stmt, count=count, by=by)
            self.mask = outer

    def _warps_at(self, short: str, name: str, node: Any) -> int:
        """How many warps meet at a barrier."""
        if short.startswith("cluster"):
            return -(-self.threads // self.warp) * self.cluster
        threads = (
            name.partition(",")[2].rstrip(">") if "," in name else node.args[2] if len(node.args) > 1 else self.threads
        )
        return -(-int(threads) // self.warp)

    def _box(self, short: str, node: Any, stmt: Any) -> None:
        """A bulk copy by a tensor map: each thread that comes by moves one box."""
        at, first = BOX_COPIES[short]
        made, coordinates = self.maps[node.args[1 + at]], list(node.args[1 + first :])
        rank, tensor, size = len(coordinates), made.args[0].args[0], _itemsize(made.args[0].args[0])
        shape, strides = (
            [int(self.value(n).max()) for n in part] for part in (made.args[1 : 1 + rank], made.args[1 + rank :])
        )
        box = tuple(int(n) for n in tile_ir.attrs_of(made)["box"])
        boxed = BoxedTensor(tuple(shape), tuple(n * size for n in strides), box, size)
        kind = "read" if short.startswith("tma_load") else "write"
        access = self._entry(kind, tensor, stmt, boxed.box_bytes, "tma")
        access.requests += self._ways()[0]
        try:
            places = np.broadcast_arrays(*(self.value(c) for c in coordinates))
        except Unknown:
            access.exact = False
            access.bytes += boxed.box_bytes * self._ways()[0]
            return
        inside, sectors = (collapsed(each, np.iinfo(np.int64).max) for each in boxed.costs(places))
        access.exact &= all(self._certain(each.shape) for each in (self.mask, inside, sectors))
        access.bytes += self._sums(inside, _summed)[0]
        access.sectors += self._sums(sectors, _summed)[0]

    def _where(self, condition: Any) -> Array:
        try:
            return self.mask & self.value(condition).astype(bool)
        except Unknown:
            return self.mask

    # -- accesses ---------------------------------------------------------------------------------------------------

    def _access(
        self,
        kind: str,
        buffer: Any,
        indices: Any,
        stmt: Any,
        rows: bool = True,
        count: int | None = None,
        by: str = "",
    ) -> None:
        if not (is_global(buffer) or is_shared(buffer)):
            return
        *outer, last = indices
        lanes = 1
        if isinstance(last, ir.prim.Ramp):
            last, lanes = last.base, int(last.lanes)
        again = (buffer, kind, self.structure(indices))
        if kind == "read" and again in self.seen:
            return  # the text reads it once
        self.seen.add(again)
        for lane in range(1 if rows else lanes):
            index = [*outer, last + lane if lane else last]
            self._one(kind, buffer, index, stmt, count or (lanes if rows else 1), by)

    @staticmethod
    def structure(indices: Any) -> tuple[int, ...]:
        """Equal for equal indices."""
        return tuple(tvm_ffi.structural_hash(i) for i in indices)

    def _entry(self, kind: str, buffer: Any, stmt: Any, width: int, by: str) -> Access:
        space = "shared" if is_shared(buffer) else "global"
        new = Access(where(stmt.span), str(buffer.name), space, kind, width, by=by)
        extents = [tile_ir.static(s) or 0 for s in buffer.ty.shape]
        new.tensor_bytes = math.prod(extents) * dtype_of(tile_ir.dtype_name(buffer)).bits // 8
        return self.found.setdefault((stmt, buffer, kind, width), new)

    def _certain(self, shape: tuple[int, ...]) -> bool:
        """Whether figures over these axes hold: no condition on the way here is unknown, and all points are evaluated."""
        return self.sure and not self._weights((*shape[:-1], 1))[1]

    def _one(self, kind: str, buffer: Any, indices: list[Any], stmt: Any, count: int, by: str) -> None:
        width = count * _itemsize(buffer)
        access = self._entry(kind, buffer, stmt, width, by)
        period = SECTOR if access.space == "global" else BANKS * BANK_BYTES
        try:
            place = self._place(buffer, indices, period)
            known = True
        except Unknown:
            place, known = np.asarray([0]), False
        access.exact &= known and self._certain(self.mask.shape)
        requests, threads = self._sums(np.asarray([0]), lambda _, active: (active.any(axis=1), active.sum(axis=1)))
        access.requests += requests
        access.bytes += threads * width
        if not known:
            return
        if access.space == "global":
            access.sectors += self._sums(place, lambda at, active: (distinct(at // SECTOR, active),))[0]
            return
        turns, least = self._sums(place, lambda at, active: wavefronts(at, active, width))
        access.wavefronts += turns
        access.conflict_free += least

    def _place(self, buffer: Any, indices: list[Any], period: int) -> Array:
        """The bytes before an element, but for multiples of `period` by which all threads move together: they cost nothing.

        These are left out of each summand, so that no array has the axes of all of them.
        """
        strides = list(buffer.ty.strides or ())
        total = np.asarray([0])
        for axis, index in enumerate(indices):
            factors = [strides[axis]] if strides else list(buffer.ty.shape[axis + 1 :])
            pitch = math.prod(int(self.value(f).max()) for f in factors) * _itemsize(buffer)
            for part, sign in _summands(index):
                moved = self.value(part) * (sign * pitch)
                total = total + (moved if moved.shape[-1] > 1 else collapsed(moved % period, period))
        return collapsed(total, period)


def _summands(index: Any, sign: int = 1) -> Iterator[tuple[Any, int]]:
    """What an index is the sum of, each with its sign."""
    if isinstance(index, (ir.prim.Add, ir.prim.Sub)):
        yield from _summands(index.a, sign)
        yield from _summands(index.b, sign if isinstance(index, ir.prim.Add) else -sign)
    else:
        yield index, sign


def _summed(amounts: Array, active: Array) -> tuple[Array]:
    return ((amounts * active).sum(axis=1),)


def _itemsize(buffer: Any) -> int:
    return max(1, dtype_of(tile_ir.dtype_name(buffer)).bits // 8)


def _called(short: str, name: str, position: int) -> tuple[str, int]:
    """(what a function of the device header does with its argument, bytes); "" for registers and what is unknown."""
    if short == "load_to_lds":  # lanes side by side: no bank twice
        return ("", "read")[position], 4
    if short == "cp_async":
        return ("copy", "read")[position], int(name.partition("<")[2].rstrip(">"))
    if short.startswith("ldmatrix"):
        return ("", "ldmatrix")[position], 16
    if short.startswith("stmatrix"):
        return ("stmatrix", "")[position], 16
    if short.startswith("atomic_") and position == 0:
        return "atomic", 0
    return "", 0


def _operands(node: Any) -> list[Any]:
    if isinstance(node, ir.Call):
        return [a for a in node.args if isinstance(a, ir.Expr)]
    names = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride")
    return [part for name in names if isinstance(part := getattr(node, name, None), ir.Expr)]


def _has_choice(node: Any) -> bool:
    found = tile_ir.walk(tir.Evaluate(node))
    return any(is_call(n, "prim.if_then_else", "tirx.if_then_else") for n in found)


_BARRIERS = frozenset("sync_threads arrive_threads sync_barrier arrive_barrier cluster_sync cluster_wait".split())
_ASYNCHRONOUS = ("cp_async", "load_to_lds")
_ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div", "Min", "Max"))
_STATEMENTS: dict[str, Any] = {
    "SeqStmt": _Counter._sequence,
    "AttrStmt": _Counter._scope,
    "Bind": _Counter._bind,
    "BufferStore": _Counter._store,
    "Evaluate": _Counter._evaluate,
    "For": _Counter._for,
    "While": _Counter._while,
    "IfThenElse": _Counter._if,
}
