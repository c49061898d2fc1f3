"""The memory that the threads of a block share: which places an access touches, and whom it meets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import where
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import is_call
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.shadow import MANY, Meeting, Shadow
from tile_compiler.simt.thread_values import Array, ThreadValues, Unknown
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

OFFSET = "tl.offset"
_ADDRESS = ("tirx.address_of", "tirx.buffer_data")


@dataclass(frozen=True)
class _Memory:
    """Where a buffer lies among the places of the shadow: `unit` bytes each, `base` the first; None: global memory."""

    buffer: Any
    base: int | None
    unit: int

    @property
    def bits(self) -> int:
        return dtype_of(tile_ir.dtype_name(self.buffer)).bits

    @property
    def width(self) -> int:
        return max(1, self.bits // 8)

    @property
    def elements(self) -> int:
        return int(math.prod(int(s) for s in self.buffer.ty.shape))


class BlockMemory(ThreadValues):
    """Accesses of the active threads, recorded in `state`; each raises SharedMemoryRace for what it meets.

    `state` is None where no thread can be. `tracked`: global buffers that are looked at beside shared memory.
    """

    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext, tracked: set[Any]) -> None:
        super().__init__(int(kernel.num_threads or 1))
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(kernel.body)
        self.memories: dict[Any, _Memory] = {b: _Memory(b, None, 1) for b in tracked}
        self.addresses: dict[tuple[Any, int], int] = {}  # places of global memory, in order of first touch
        self.shared_places = self._place_shared()
        self.state: Shadow | None = None
        self.sites: list[Any] = []
        self.site_of: dict[Any, int] = {}
        self.quiet: dict[Any, bool] = {}
        self.readers: dict[Any, bool] = {}
        self.trace: list[int] = []
        self.depth = self.nest = 0  # loops over registers around here; the number of the outermost such loop
        self.scattered: dict[int, int] = {}  # by site of a write to an unknown address: the nest in which it was last

    def _place_shared(self) -> int:
        """Lay the shadow over the block's shared memory, so that buffers that share bytes meet; how many places."""
        allocated = [n for n in tile_ir.walk(self.kernel.body) if isinstance(n, tir.AllocBuffer)]
        found = [n for n in allocated if str(n.buffer.scope()) in tile_ir.SHARED]
        views = [n.buffer for n in tile_ir.walk(self.kernel.body) if isinstance(n, tir.DeclBuffer)]
        shared = {n.buffer for n in found}
        views = [v for v in views if self.roots.get(v) in shared]
        widths = [_Memory(b, 0, 1).width for b in (*shared, *views)]
        unit = min(widths, default=1)
        end = 0
        offsets: dict[Any, int] = {}
        for node in found:
            notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
            offsets[node.buffer] = int(notes.get(OFFSET, end))
            size = _Memory(node.buffer, 0, 1)
            end = max(end, offsets[node.buffer] + -(-size.elements * size.width // 16) * 16)
        for buffer in (*shared, *views):
            base = offsets[self.roots.get(buffer, buffer)] // unit
            self.memories[buffer] = _Memory(buffer, base, unit)
        return -(-end // unit)

    def _is_quiet(self, node: Any) -> bool:
        """Whether nothing below touches memory that threads share, synchronizes, or leaves a loop."""
        if node not in self.quiet:
            self.quiet[node] = not any(
                (isinstance(n, ir.Var) and (n in self.memories or n in self.followed))
                or (is_call(n, "tirx.call_extern") and "sync" in str(n.args[0].value))
                or is_call(n, "tirx.break_loop", "tirx.continue_loop")
                or isinstance(n, tir.AllocBuffer)
                for n in tile_ir.walk(node)
            )
        return self.quiet[node]

    def _only_reads(self, node: Any) -> bool:
        """Whether all that happens below to memory that threads share, or to followed values, is that they are read."""
        if node not in self.readers:
            self.readers[node] = not any(
                (isinstance(n, tir.BufferStore) and (n.buffer in self.memories or n.buffer in self.followed))
                or isinstance(n, (tir.While, tir.AllocBuffer))
                or is_call(n, "tirx.break_loop", "tirx.continue_loop", "tl.atomic_elem")
                or (is_call(n, "tirx.call_extern") and not self._only_reads_by(n))
                for n in tile_ir.walk(node)
            )
        return self.readers[node]

    def _only_reads_by(self, call: Any) -> bool:
        """Whether a function gets no address by which it could change what threads share, and does not synchronize."""
        name = str(call.args[0].value)
        given = {_buffer_at(a) for a in call.args[1:] if is_call(a, *_ADDRESS)}
        kept = {b for b in given if b in self.memories or b in self.followed}
        return "sync" not in name and (not kept or name.startswith("tl::ldmatrix_x"))

    # -- accesses ---------------------------------------------------------------------------------------------

    def _reads(self, node: Any, stmt: Any) -> None:
        """Every access inside an expression; what a condition guards is taken where the condition holds."""
        if self._is_quiet(node):
            return
        if isinstance(node, ir.TensorLoad):
            for index in node.indices:
                self._reads(index, stmt)
            memory = self.memories.get(node.source)
            if memory is not None:
                self._touch("read", memory, node.indices, 1, stmt)
        elif is_call(node, "prim.if_then_else"):
            self._reads(node.args[0], stmt)
            outer = self.mask
            try:
                condition = np.broadcast_to(self.value(node.args[0]), (self.threads,)).astype(bool)
            except Unknown:
                condition = None
            for part, sign in ((node.args[1], True), (node.args[2], False)):
                self.mask = outer if condition is None else outer & (condition == sign)
                if self.mask.any():
                    self._reads(part, stmt)
            self.mask = outer
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            memory = self.memories.get(target.source)
            if memory is not None:
                self._touch("atomic", memory, target.indices, 1, stmt)
            self._reads(node.args[1], stmt)
        elif is_call(node, "tirx.call_extern"):
            self._extern(node, stmt)
        elif isinstance(node, ir.Call):
            for part in node.args:
                self._reads(part, stmt)
        else:
            for name in ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride"):
                part = getattr(node, name, None)
                if isinstance(part, ir.Expr):
                    self._reads(part, stmt)

    def _extern(self, node: Any, stmt: Any) -> None:
        name = str(node.args[0].value)
        for position, argument in enumerate(node.args[1:]):
            if not is_call(argument, *_ADDRESS):
                self._reads(argument, stmt)
                continue
            buffer, target = _buffer_at(argument), argument.args[0]
            if buffer in self.followed:
                self.unknown[buffer] = True
            memory = self.memories.get(buffer)
            if memory is None:
                continue
            indices = target.indices if isinstance(target, ir.TensorLoad) else None
            if name.startswith("tl::cp_async<"):
                kind = "read" if position else "async"
                self._touch(kind, memory, indices, int(name[13:-1]) * 8 // memory.bits, stmt)
            elif name.startswith(("tl::ldmatrix_x", "tl::stmatrix_x")):
                outer = self.mask
                self.mask = outer & (self.lane % 32 < 8 * int(name[14]))
                moved = "write" if name.startswith("tl::st") else "read"
                self._touch(moved, memory, indices, 128 // memory.bits, stmt)
                self.mask = outer
            elif not name.startswith("tl::"):
                self.ctx.report.assume(
                    stmt.span, f"{name} accesses {memory.buffer.name} in step with the barriers around it"
                )

    def _touch(self, kind: str, memory: _Memory, indices: Any, count: int, stmt: Any, same: bool = False) -> None:
        assert self.state is not None
        site = self._site(stmt)
        place, thread, known = self._places(memory, indices, count)
        self.trace.append(hash((kind, site, place.tobytes())))
        again = not known and self.depth > 0 and self.scattered.get(site) == self.nest  # one statement of the user
        found = self.state.meets(kind, place, thread, site, same or again)
        if found is None and kind in ("write", "async") and not same:
            if known:
                found = _among_themselves(place, thread, site)
            else:
                self.scattered[site] = self.nest
                self.ctx.report.assume(stmt.span, f"threads write different elements of {memory.buffer.name}")
        if found is not None:
            self._refute(memory, found, stmt, kind, known)
        if kind == "async":
            self.state.start(place, thread, site)
        else:
            self.state.record(kind, place, thread, site)

    def _places(self, memory: _Memory, indices: Any, count: int) -> tuple[Array, Array, bool]:
        """(places, threads) of an access by the active threads; any thread anywhere if the address is not known, and
        whether it is."""
        known = True
        try:
            if indices is None:
                raise Unknown(True)
            start, count = self._linear(memory, list(indices), count)
            start = np.broadcast_to(start, (self.threads,))[self.mask]
            element = (start[:, None] + np.arange(count)).ravel()
            thread = np.repeat(self.lane[self.mask], count)
        except Unknown:
            known = False
            if memory.base is None:
                element, thread = np.asarray([-1, -1]), np.asarray([MANY, MANY - 1])
            else:
                element = np.tile(np.arange(memory.elements), 2)  # two threads stand for all
                thread = np.repeat(np.asarray([MANY, MANY - 1]), memory.elements)
        if memory.base is None:
            return self._global_places(memory, element), thread, known
        inside = (element >= 0) & (element < memory.elements)
        element, thread = element[inside], thread[inside]
        if memory.bits < 8:  # neighbours share a byte, which is what a thread writes
            return memory.base + element * memory.bits // 8, thread, known
        factor = memory.width // memory.unit
        if factor == 1:
            return memory.base + element, thread, known
        place = (memory.base + element[:, None] * factor + np.arange(factor)).ravel()
        return place, np.repeat(thread, factor), known

    def _linear(self, memory: _Memory, indices: list[Any], count: int) -> tuple[Array, int]:
        """(the number of the first element in the buffer's storage, how many neighbours)."""
        if isinstance(indices[-1], ir.prim.Ramp):
            count = int(indices[-1].lanes)
            indices = [*indices[:-1], indices[-1].base]
        if len(indices) == 1:
            return self.value(indices[0]), count
        shape, strides = list(memory.buffer.ty.shape), list(memory.buffer.ty.strides or ())
        total, step = np.asarray([0]), np.asarray([1])
        for dim in reversed(range(len(indices))):
            pitch = self.value(strides[dim]) if strides else step
            total = total + self.value(indices[dim]) * pitch
            step = step * self.value(shape[dim])
        return total, count

    def _global_places(self, memory: _Memory, element: Array) -> Array:
        """Places of global memory, numbered as they are met; -1, an unknown address, has one of its own."""
        assert self.state is not None
        root = self.roots.get(memory.buffer, memory.buffer)
        known, number = np.unique(element, return_inverse=True)
        first = self.shared_places
        ids = [self.addresses.setdefault((root, int(e)), first + len(self.addresses)) for e in known]
        self.state.grow(first + len(self.addresses))
        return np.asarray(ids, np.int64)[number]

    def _site(self, stmt: Any) -> int:
        if stmt not in self.site_of:
            self.site_of[stmt] = len(self.sites)
            self.sites.append(stmt)
        return self.site_of[stmt]

    def _refute(self, memory: _Memory, found: Meeting, stmt: Any, kind: str, known: bool) -> None:
        done = {"read": "reads", "write": "writes", "atomic": "updates", "async": "starts a copy to"}
        first, other = self.sites[found.before], found.kind
        who = "" if found.partner < 0 else f" (thread {found.partner})"
        me = f"thread {found.thread}" if found.thread >= 0 else "a thread"
        at = self._named(memory, found.place)
        problem = f"{at} is still being copied to" if other == "async" else f"a race on {at}"
        raise SharedMemoryRace(
            problem,
            at=stmt.span,
            found=f"{where(first.span) or 'a statement'} {done[other]} it{who}; {where(stmt.span) or 'a later one'} "
            f"{done[kind]} it ({me}), with no {'wait' if other == 'async' else 'barrier'} between them",
            expected="threads that meet in one place have a barrier between them",
            repair="T.sync_threads() between the two, where all threads of the block come by"
            if known
            else "memory says where, so nothing shows that threads keep apart: write it in a loop of its own, which "
            "gets a barrier, or by T.atomic_add and the like",
        )

    @staticmethod
    def _named(memory: _Memory, place: int) -> str:
        if memory.base is None:
            return str(memory.buffer.name)
        return f"{memory.buffer.name}[{(place - memory.base) * memory.unit // memory.width}]"


def _buffer_at(address: Any) -> Any:
    """The buffer that an argument points into."""
    target = address.args[0]
    return target.source if isinstance(target, ir.TensorLoad) else target


def _among_themselves(place: Array, thread: Array, site: int) -> Meeting | None:
    """Two threads that write one place in the same statement."""
    order = np.argsort(place, kind="stable")
    p, t = place[order], thread[order]
    clash = (p[1:] == p[:-1]) & (t[1:] != t[:-1])
    if not clash.any():
        return None
    bad = int(np.argmax(clash))
    return Meeting(int(p[bad]), "write", site, int(t[bad]), int(t[bad + 1]))
