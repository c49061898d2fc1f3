"""Small programs of threads in the final form, written by hand, for tests of the checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.operators.nests import REGISTERS
from tilelang.ir import tile_ir

KERNEL_LINES = 10  # lines are numbered from here on, so that messages can be looked at
Stmts = Sequence[Any]


def call(name: str, *args: Any) -> Any:
    return tir.Evaluate(tir.call_extern("int32", f"tl::{name}", *args))


def at(buffer: Any, *indices: Any) -> Any:
    """The address of an element."""
    return tir.address_of(tir.BufferLoad(buffer, list(indices)))


class Program:
    """A kernel of `threads` threads: allocate, then `function(statements)`. Each statement is a line of its own."""

    def __init__(self, threads: int = 128) -> None:
        self.threads = threads
        self.tx = tir.Var("tx", "int32")
        self.allocated: list[Any] = []
        self.barriers: list[tuple[Any, list[int]]] = []
        self.maps: list[Any] = []
        self.offset = 0
        self.params: list[Any] = []

    def shared(self, size: int, name: str = "s", dtype: str = "float16") -> Any:
        buffer = tir.decl_buffer((size,), dtype, name=name, scope="shared.dyn", layout=None)
        self.allocated.append(tir.AllocBuffer(buffer, {"tl.offset": self.offset}))
        self.offset += -(-size * 2 // 1024) * 1024
        return buffer

    def private(self, size: int, name: str, dtype: str = "float32") -> Any:
        buffer = tir.decl_buffer((size,), dtype, name=name, scope="local", layout=None)
        self.allocated.append(tir.AllocBuffer(buffer))
        return buffer

    def tensor(self, size: int, name: str, dtype: str = "float16") -> Any:
        buffer = tir.decl_buffer((size,), dtype, name=name, layout=None)
        self.params.append(buffer)
        return buffer

    def mbarrier(self, arrivals: Sequence[int], name: str) -> Any:
        buffer = tir.decl_buffer((len(arrivals),), "uint64", name=name, scope="shared.barrier", layout=None)
        self.allocated.append(tir.AllocBuffer(buffer, {"tl.arrivals": list(arrivals), "tl.offset": self.offset}))
        self.offset += 1024
        self.barriers.append((buffer, list(arrivals)))
        return buffer

    def tensor_map(self, tensor: Any, box: Sequence[int]) -> Any:
        var = tir.Var(f"{tensor.name}_map", "handle")
        data = ir.Call(ir.Op.get("tirx.buffer_data"), [tensor], ret_ty="handle")
        made = tile_ir.call("tl.tensor_map", [data], {"box": list(box), "swizzle": 0}, dtype="handle")
        self.maps.append(tir.Bind(var, made))
        return var

    # -- statements ---------------------------------------------------------------------------------------------------

    def setup(self) -> list[Any]:
        """One thread initializes the barriers; all see it."""
        inits = [
            call("mbarrier_init", at(b, n), count) for b, counts in self.barriers for n, count in enumerate(counts)
        ]
        return [tir.IfThenElse(self.tx == 0, seq([*inits, call("fence_mbarrier_init")]), None), call("sync_threads")]

    def function(self, stmts: Stmts) -> Any:
        block = tir.Var("bx", "int32")
        grid, threads = ((block, tir.const(1, "int32")),), ((self.tx, tir.const(self.threads, "int32")),)
        body = _Lines().numbered(seq([*self.allocated, *stmts]))
        kernel = tile_ir.Kernel(0, grid, threads, body, _span(1))
        return tir.PrimFunc(self.params, seq([*self.maps, kernel.to_stmt()]))


def seq(stmts: Stmts) -> Any:
    return tile_ir.sequence([s for stmt in stmts for s in tile_ir.statements(stmt)])


def producer(*stmts: Any) -> Any:
    role = ir.StringImm("producer")
    return tir.AttrStmt(role, "tl.role", role, seq(stmts))


def loop(name: str, extent: Any, body: Any) -> Any:
    var = tir.Var(name, "int32")
    return tir.For(var, tir.const(0, "int32"), extent, tir.ForKind.SERIAL, seq(body(var)))


def unrolled(name: str, extent: int, body: Any) -> Any:
    """A loop over registers."""
    var = tir.Var(name, "int32")
    notes = {REGISTERS: 1}
    zero, end = (tir.const(n, "int32") for n in (0, extent))
    return tir.For(var, zero, end, tir.ForKind.UNROLLED, seq(body(var)), annotations=notes)


def when(condition: Any, *stmts: Any) -> Any:
    return tir.IfThenElse(condition, seq(stmts), None)


def store(buffer: Any, index: Any, value: Any) -> Any:
    return tir.BufferStore(buffer, value, [index])


def load(buffer: Any, index: Any) -> Any:
    return tir.BufferLoad(buffer, [index])


def _span(line: int) -> Any:
    return ir.Span(ir.SourceName("program.py"), line, line, 1, 1)


class _Lines:
    """Gives every statement a line: messages name lines."""

    def __init__(self) -> None:
        self.line = KERNEL_LINES

    def numbered(self, node: Any) -> Any:
        if isinstance(node, tir.SeqStmt):
            return seq([self.numbered(s) for s in node.seq])
        self.line += 1
        span = _span(self.line)
        if isinstance(node, tir.Evaluate):
            return tir.Evaluate(node.value, span=span)
        if isinstance(node, tir.BufferStore):
            return tir.BufferStore(node.buffer, node.value, node.indices, span=span)
        if isinstance(node, tir.IfThenElse):
            other = None if node.else_case is None else self.numbered(node.else_case)
            return tir.IfThenElse(node.condition, self.numbered(node.then_case), other, span=span)
        if isinstance(node, tir.AttrStmt):
            return tir.AttrStmt(node.node, node.attr_key, node.value, self.numbered(node.body), span=span)
        if isinstance(node, tir.For):
            notes, body = node.annotations, self.numbered(node.body)
            return tir.For(node.loop_var, node.min, node.extent, node.kind, body, annotations=notes, span=span)
        return node
