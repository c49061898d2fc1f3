"""All threads of a block in lockstep, in numpy: the interpreter, plus the calls of the device header.

`cp.async` writes at the wait that covers it and not before, so that a missing wait gives a wrong answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir

from tile_compiler.instructions import MatrixMultiply, declared
from tile_compiler.rewrite import is_call
from tilelang.interpreter.arguments import bind_arguments
from tilelang.interpreter.expressions import constant, dtype_of_node
from tilelang.interpreter.lanes import Lanes
from tilelang.interpreter.machine import Machine
from tilelang.interpreter.memory import Buffer
from tilelang.ir import tile_ir
from tilelang.layout import Fragment
from tilelang.ops.atomic import ELEMENT

WAVE = 64  # lanes of AMD's


def run(func: Any, arguments: Sequence[Any], block: type[Threads] | None = None) -> None:
    """Execute a lowered function on numpy arrays, in place; `block` is what executes each of its blocks."""
    host = Machine(Lanes("host", ()), None, None, print)
    with np.errstate(all="ignore"):
        bind_arguments(host, func, arguments, {})
        for stmt in tile_ir.statements(func.body):
            kernel = tile_ir.as_kernel(stmt)
            if kernel is None:
                host.execute(stmt)
                continue
            grid = [host.integer(extent) for _, extent in kernel.grid]
            for reversed_place in itertools.product(*(range(n) for n in reversed(grid))):
                _run_block(host, kernel, reversed_place[::-1], block or Threads)


def _run_block(host: Machine, kernel: tile_ir.Kernel, place: tuple[int, ...], machine: type[Threads]) -> None:
    threads = [int(extent) for _, extent in kernel.threads]
    block = machine(Lanes("thread", threads, x_first=True), place, None, print)
    block.share(host)
    for (var, _), coordinate in zip(kernel.grid, place):
        block.bind(var, constant(coordinate, dtype_of_node(var)))
    for (var, _), coordinates in zip(kernel.threads, block.lanes.coordinates()):
        block.bind(var, coordinates.astype(dtype_of_node(var).as_numpy()))
    block.execute(kernel.body)


class Threads(Machine):
    """One block."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.open_group: list[Any] = []
        self.groups: list[list[Any]] = []
        self.loads: list[Any] = []  # all waves do the same

    def _place(self, node: Any, count: int) -> tuple[Buffer, list[Any]]:
        """The buffer and the indices of `count` neighbours from an `address_of` on, by lane."""
        target = node.args[0]
        lanes = self.lanes.count
        indices = [np.broadcast_to(self.value(i), (lanes,)).astype(np.int64)[:, None] for i in target.indices]
        indices[-1] = indices[-1] + np.arange(count)
        indices = [np.broadcast_to(i, (lanes, count)) for i in indices]
        return self.buffer(target.source), indices

    def meaning(self, node: Any) -> Any:
        if is_call(node, ELEMENT) and isinstance(node.args[0].args[0].indices[-1], ir.prim.Ramp):
            place, added = node.args[0].args[0], node.args[1]
            first, count = [*place.indices[:-1], place.indices[-1].base], int(place.indices[-1].lanes)
            return lambda block: block._add_several(place.source, first, added, count)
        if is_call(node, "tirx.call_extern") and str(node.args[0].value).startswith("tl::"):
            name, *args = node.args
            return lambda block: block._header(str(name.value), args)
        return super().meaning(node)

    def _header(self, name: str, args: Sequence[Any]) -> Any:
        if name.startswith("tl::sync_threads"):
            assert self.lanes.mask.all(), "a barrier that not every thread reaches"
        elif name.startswith("tl::cp_async<"):
            self._cp_async(int(name[13:-1]), *args[:3])  # a fourth argument is for flatten_shared
        elif name == "tl::load_to_lds<4>":
            self._load_to_lds(*args)
        elif name.startswith("tl::wait_loads<"):
            while len(self.loads) > int(name[15:-1]):
                self._arrive(self.loads.pop(0))
        elif name == "tl::cp_async_commit":
            self.groups.append(self.open_group)
            self.open_group = []
        elif name.startswith("tl::cp_async_wait<"):
            keep = int(name[18:-1])
            while len(self.groups) > keep:
                for copy in self.groups.pop(0):
                    self._arrive(copy)
        elif name.startswith("tl::ldmatrix_x"):
            self._ldmatrix(int(name[14]), name.endswith("_trans"), *args)
        elif name.startswith("tl::stmatrix_x"):
            self._stmatrix(int(name[14]), name.endswith("_trans"), *args)
        elif name == "tl::transpose_quad":
            self._transpose_quad(*args)
        elif name.startswith(("tl::mma_", "tl::mfma_", "tl::dot4")):
            self._multiply(next(d for d in declared() if d.name == name), *args)
        elif name == "tl::to_tf32":
            bits = np.asarray(self.value(args[0]), np.float32).view(np.uint32)
            return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
        elif name in ("tl::atomic_add_x2", "tl::atomic_add_x4"):
            target = args[0].args[0]
            return self._add_several(target.source, target.indices, args[1], int(name[-1]))
        elif name.startswith("tl::atomic_"):
            target = args[0].args[0]
            indices = [self.value(i) for i in target.indices]
            op = name[11:].partition("<")[0]
            return self.atomic(self.buffer(target.source), indices, op, self.value(args[1]))
        elif name == "tl::shfl_xor":
            value = np.broadcast_to(self.value(args[0]), (self.lanes.count,))
            return value[np.arange(self.lanes.count) ^ int(self.value(args[1])[0])]
        else:
            raise AssertionError(f"no meaning for {name}")
        return np.zeros(1, np.int32)

    def _add_several(self, buffer: Any, first: Sequence[Any], value: Any, count: int) -> Any:
        """Neighbours from `first` on, one after the other; what the hardware does at once must be aligned."""
        *rows, start = [self.value(i) for i in first]
        assert (np.broadcast_to(start, (self.lanes.count,))[self.lanes.mask] % count == 0).all()
        values = np.broadcast_to(self.value(value), (self.lanes.count, count))
        for lane in range(count):
            self.atomic(self.buffer(buffer), [*rows, start + lane], "add", values[:, lane])
        return np.zeros(1, np.int32)

    def _cp_async(self, size: int, dst: Any, src: Any, valid: Any) -> None:
        count = size // self.buffer(src.args[0].source).dtype.as_numpy().itemsize
        source, from_ = self._place(src, count)
        target, into = self._place(dst, count)
        mask = self.lanes.mask.copy()
        valid = np.broadcast_to(self.value(valid), (self.lanes.count,))
        self.lanes.mask = mask & valid
        values = np.broadcast_to(self.read(source, from_), (self.lanes.count, count)).copy()
        self.lanes.mask = mask
        values[~valid] = 0
        self.open_group.append((target, into, values, mask))

    def _load_to_lds(self, dst: Any, src: Any) -> None:
        """Lane l of a wave writes four bytes at `dst`, one address for the wave, plus 4 * l."""
        count = 4 // self.buffer(src.args[0].source).dtype.as_numpy().itemsize
        source, from_ = self._place(src, count)
        target, into = self._place(dst, count)
        wave = into[-1].reshape(-1, WAVE, count)
        assert (wave == wave[:, :1]).all(), "lanes of a wave give different addresses"
        into[-1] = into[-1] + (np.arange(self.lanes.count) % WAVE * count)[:, None]
        values = np.broadcast_to(self.read(source, from_), (self.lanes.count, count)).copy()
        self.loads.append((target, into, values, self.lanes.mask.copy()))

    def _arrive(self, copy: Any) -> None:
        buffer, indices, values, mask = copy
        outer, self.lanes.mask = self.lanes.mask, mask
        self.write(buffer, indices, values)
        self.lanes.mask = outer

    def _ldmatrix(self, count: int, transposed: bool, dst: Any, src: Any) -> None:
        size = self.buffer(src.args[0].source).dtype.as_numpy().itemsize
        source, place = self._place(src, 16 // size)
        mask = self.lanes.mask
        assert mask.all(), "ldmatrix needs whole warps"
        lane = np.arange(self.lanes.count) % 32
        self.lanes.mask = lane < 8 * count
        rows = np.ascontiguousarray(self.read(source, place))
        self.lanes.mask = mask
        matrices = rows.view(np.uint16).reshape(-1, 32, 8)[:, : 8 * count].reshape(-1, count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        pairs = matrices.reshape(-1, count, 32, 2).swapaxes(1, 2)  # warp, lane, matrix, 2
        values = np.ascontiguousarray(pairs.reshape(self.lanes.count, 2 * count)).view(rows.dtype)
        target, into = self._place(dst, values.shape[1])
        self.write(target, into, values)

    def _stmatrix(self, count: int, transposed: bool, dst: Any, src: Any) -> None:
        size = self.buffer(dst.args[0].source).dtype.as_numpy().itemsize
        source, from_ = self._place(src, count * 4 // size)
        mask = self.lanes.mask
        assert mask.all(), "stmatrix needs whole warps"
        halves = np.ascontiguousarray(self.read(source, from_)).view(np.uint16)
        matrices = halves.reshape(-1, 32, count, 2).swapaxes(1, 2).reshape(-1, count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        target, into = self._place(dst, 16 // size)
        rows = np.zeros((len(matrices), 32, 8), np.uint16)
        rows[:, : 8 * count] = matrices.reshape(-1, 8 * count, 8)
        self.lanes.mask = np.arange(self.lanes.count) % 32 < 8 * count
        self.write(target, into, rows.reshape(-1, 8).view(target.dtype.as_numpy()))
        self.lanes.mask = mask

    def _transpose_quad(self, words: Any) -> None:
        size = self.buffer(words.args[0].source).dtype.as_numpy().itemsize
        buffer, place = self._place(words, 16 // size)
        assert self.lanes.mask.all(), "transpose_quad needs whole warps"
        rows = np.ascontiguousarray(self.read(buffer, place))
        turned = np.ascontiguousarray(rows.view(np.uint32).reshape(-1, 4, 4).swapaxes(1, 2)).reshape(-1, 4)
        self.write(buffer, place, turned.view(rows.dtype))

    def _multiply(self, mma: MatrixMultiply, *operands: Any) -> None:
        """A matrix instruction, executed on the whole matrices of each wave by its declared meaning."""
        assert mma.lanes == 1 or self.lanes.mask.all(), f"{mma.name} needs whole waves"
        matrices = []
        for node, fragment in zip(operands, (mma.c_fragment, mma.a_fragment, mma.b_fragment)):
            buffer, place = self._place(node, fragment.local_size)
            values = self.read(buffer, place).reshape(-1, mma.lanes, fragment.local_size)
            matrices.append(values[(slice(None), *_held(fragment))])
        buffer, place = self._place(operands[0], mma.c_fragment.local_size)
        products = [self._product(mma, *wave) for wave in zip(*matrices)]
        out = np.zeros((len(products), mma.lanes, mma.c_fragment.local_size), buffer.dtype.as_numpy())
        out[(slice(None), *_held(mma.c_fragment))] = products
        self.write(buffer, place, out.reshape(-1, mma.c_fragment.local_size))

    def _product(self, mma: MatrixMultiply, c: Any, a: Any, b: Any) -> Any:
        """The new C of one wave, in its own type."""
        wide = [m.astype(np.int64 if m.dtype.kind in "iu" else np.float64) for m in (c, a, b)]
        return mma.meaning(*wide).astype(c.dtype)


def _held(fragment: Fragment) -> tuple[Any, Any]:
    """(lanes, registers) of all elements."""
    lane, register = (np.broadcast_to(x, fragment.shape) for x in fragment(*np.indices(fragment.shape)))
    return lane, register


def calls(func: Any, name: str) -> list[Any]:
    """The calls of a function of the device header."""
    found = [n for n in tile_ir.walk(func.body) if isinstance(n, ir.Call) and str(n.op.name) == "tirx.call_extern"]
    return [n for n in found if str(n.args[0].value).startswith(name)]
