"""The tile IR, stated once: stock `tvm.tirx` nodes, and the calls, attributes and annotations we add.

The grammar, with what is legal at which stage, is `docs/internals/tile-ir.md`. This module holds the
constructors and the questions that every reader of the IR asks; the operators are `tilelang/ops/*.py`.

Importing this module imports TVM (0.9 s of CPU), so only tracing, interpreting and compiling do it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tilelang.ir.tile_ir_keys import INDEPENDENT as INDEPENDENT
from tilelang.ir.tile_ir_keys import KERNEL as KERNEL
from tilelang.ir.tile_ir_keys import PARALLEL as PARALLEL
from tilelang.ir.tile_ir_keys import PIPELINE_ORDER as PIPELINE_ORDER
from tilelang.ir.tile_ir_keys import PIPELINE_STAGE as PIPELINE_STAGE
from tilelang.ir.tile_ir_keys import PIPELINED as PIPELINED
from tilelang.ir.tile_ir_keys import PROMISED as PROMISED

# -- scopes ---------------------------------------------------------------------------------------------------

GLOBAL = ("global", "")
SHARED = ("shared", "shared.dyn")
FRAGMENT = ("local.fragment",)
PRIVATE = ("local", "local.var")
BARRIER = "shared.barrier"  # mbarriers: elements of uint64 that only calls touch

ARRIVALS = "tl.arrivals"  # annotation of an allocation of barriers: how many arrivals end a phase of each
LEADER = "tl.leader"  # attribute: of the threads that come by, the first one executes the body
GROUP = "tl.threads"  # attribute (first, count): the body is the work of these threads alone, as if they were a block

BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


_known_ops: dict[str, ir.Op] = {}
_by_lanes: set[str] = set()
# Threads may trace their first kernels at once. TVM takes each name one time, and does not find another one while it does.
_registering = threading.Lock()


def operator(name: str, *, pure: bool = False, by_lanes: bool = False) -> ir.Op:
    """The `ir.Op` called `name`, registered on first use. Every name of ours starts with `tl.`. `by_lanes`: of vectors it is
    what it is of each lane."""
    found = _known_ops.get(name)
    if found is None:
        with _registering:
            found = _known_ops.get(name)
            if found is None:
                found = _known_ops[name] = _register(name, pure, by_lanes)
    return found


def _register(name: str, pure: bool, by_lanes: bool) -> ir.Op:
    try:
        ir.Op.get(name)
    except Exception:  # not registered yet: tvm_ffi raises its own AttributeError kinds
        tvm_ffi.get_global_func("ir.RegisterOp")(name, "")
    effect = tir.CallEffectKind.Pure if pure else tir.CallEffectKind.Opaque
    ir.register_op_attr(name, "TCallEffectKind", effect.value)
    ir.register_op_attr(name, "TScriptPrinterName", name, 20)
    if by_lanes:
        ir.register_op_attr(name, "TVectorizable", True)
        _by_lanes.add(name)
    return ir.Op.get(name)


def call(
    name: str, args: Sequence[Any], attrs: dict[str, Any] | None = None, *, dtype: str = "void", span: Any = None
) -> ir.Call:
    """A call of one of our operators; `attrs` are closed literals (int, float, bool, str, lists of them)."""
    return ir.Call(operator(name), list(args), attrs=attrs or None, ret_ty=dtype, span=span)


def only_computes(node: ir.Call) -> bool:
    """Whether a call gives a value of its operands and does nothing else, so that vectors may be its operands."""
    name = str(getattr(node.op, "name", ""))
    return name in _by_lanes or not name.startswith(("tl.", "tirx.call_", "tirx.break", "tirx.continue", "tirx.ret"))


def attrs_of(node: ir.Call) -> dict[str, Any]:
    """The literals of a call as plain Python values."""
    return {} if node.attrs is None else {str(k): plain(v) for k, v in node.attrs.items()}


def plain(value: Any) -> Any:
    """A closed literal of the IR as a Python value: arrays become lists, IntImm becomes int."""
    if isinstance(value, (tir.IntImm, tir.FloatImm, ir.StringImm)):
        return value.value
    if isinstance(value, tvm_ffi.Array):
        return [plain(v) for v in value]
    if isinstance(value, tvm_ffi.Map):
        return {str(k): plain(v) for k, v in value.items()}
    return value


def tile_call(stmt: Any) -> ir.Call | None:
    """The `tl.*` call that `stmt` evaluates, or None."""
    if isinstance(stmt, tir.Evaluate) and isinstance(stmt.value, ir.Call):
        name = getattr(stmt.value.op, "name", "")
        if name.startswith("tl."):
            return stmt.value
    return None


# -- buffers and regions --------------------------------------------------------------------------------------


def is_buffer(value: Any) -> bool:
    return isinstance(value, ir.Var) and tir.is_buffer_var(value)


def region(buffer: Any, ranges: Sequence[tuple[Any, Any]]) -> Any:
    """A region from (min, extent) pairs, one for each dimension of `buffer`."""
    return tir.BufferRegion(buffer, [ir.Range.from_min_extent(m, e) for m, e in ranges])


def whole(buffer: Any) -> Any:
    return region(buffer, [(0, s) for s in buffer.ty.shape])


def extents(reg: Any) -> list[Any]:
    return [r.extent for r in reg.region]


def mins(reg: Any) -> list[Any]:
    return [r.min for r in reg.region]


def static(value: Any) -> int | None:
    """`value` as a Python int when it is a constant, else None."""
    if isinstance(value, int):
        return value
    return int(value.value) if isinstance(value, tir.IntImm) else None


def dtype_name(node: Any) -> str:
    """The dtype of an expression or a buffer as text."""
    ty = node.ty
    return str(ty.dtype) if hasattr(ty, "dtype") and not isinstance(ty, ir.PrimType) else str(ty)


# -- statements -----------------------------------------------------------------------------------------------


def sequence(stmts: Sequence[Any], span: Any = None) -> Any:
    """One statement out of several; `Evaluate(0)` for none."""
    if not stmts:
        return tir.Evaluate(tir.const(0, "int32"))
    return stmts[0] if len(stmts) == 1 else tir.SeqStmt(list(stmts), span=span)


def statements(stmt: Any) -> list[Any]:
    """The statements of a body in order, nested sequences flattened, empty ones dropped."""
    if isinstance(stmt, tir.SeqStmt):
        return [s for part in stmt.seq for s in statements(part)]
    if isinstance(stmt, tir.Evaluate) and isinstance(stmt.value, tir.IntImm):
        return []
    return [stmt]


@dataclass(frozen=True)
class Kernel:
    """One launch inside a function.

    `grid` and `threads` are (axis var, extent) pairs, x first; `threads` is empty when the user left them out.
    """

    index: int
    grid: tuple[tuple[Any, Any], ...]
    threads: tuple[tuple[Any, Any], ...]
    body: Any
    span: Any = None

    @property
    def num_threads(self) -> int | None:
        total = 1
        for _, extent in self.threads:
            total *= int(extent)
        return total if self.threads else None

    def to_stmt(self) -> Any:
        body = self.body
        names = list(zip(BLOCK_AXES, self.grid)) + list(zip(THREAD_AXES, self.threads))
        for axis, (var, extent) in reversed(names):
            iter_var = tir.IterVar(ir.Range.from_min_extent(0, extent), var, 1, axis)
            body = tir.AttrStmt(iter_var, "thread_extent", extent, body, span=self.span)
        index = tir.const(self.index, "int32")
        return tir.AttrStmt(index, KERNEL, index, body, span=self.span)


def as_kernel(stmt: Any) -> Kernel | None:
    """The `Kernel` that `stmt` is, or None for a host-level statement."""
    if not (isinstance(stmt, tir.AttrStmt) and stmt.attr_key == KERNEL):
        return None
    index, inner = int(stmt.value), stmt.body
    axes: dict[str, list[tuple[Any, Any]]] = {"blockIdx": [], "threadIdx": []}
    while isinstance(inner, tir.AttrStmt) and inner.attr_key == "thread_extent":
        axes[str(inner.node.thread_tag).split(".")[0]].append((inner.node.var, inner.value))
        inner = inner.body
    return Kernel(index, tuple(axes["blockIdx"]), tuple(axes["threadIdx"]), inner, stmt.span)


def kernels(func: tir.PrimFunc) -> list[Kernel]:
    """The launches of a function, in order."""
    return [k for s in statements(func.body) if (k := as_kernel(s)) is not None]


@dataclass(frozen=True)
class ParallelNest:
    """A `T.Parallel` loop nest: loop variables and extents, outermost first, over one body."""

    loop_vars: tuple[Any, ...]
    extents: tuple[Any, ...]
    body: Any
    annotations: dict[str, Any]
    span: Any = None

    def to_stmt(self) -> Any:
        body = self.body
        for depth in range(len(self.loop_vars) - 1, -1, -1):
            notes = {PARALLEL: len(self.loop_vars), **self.annotations} if depth == 0 else None
            zero = tir.const(0, str(self.loop_vars[depth].ty))
            kind = tir.ForKind.PARALLEL
            body = tir.For(
                self.loop_vars[depth], zero, self.extents[depth], kind, body, annotations=notes, span=self.span
            )
        return body


def as_parallel(stmt: Any) -> ParallelNest | None:
    """The `T.Parallel` nest that starts at `stmt`, or None."""
    if not (isinstance(stmt, tir.For) and stmt.annotations and PARALLEL in stmt.annotations):
        return None
    notes = {str(k): plain(v) for k, v in stmt.annotations.items()}
    count = int(notes.pop(PARALLEL))
    loop_vars, sizes, inner = [], [], stmt
    for _ in range(count):
        loop_vars.append(inner.loop_var)
        sizes.append(inner.extent)
        inner = inner.body
    return ParallelNest(tuple(loop_vars), tuple(sizes), inner, notes, stmt.span)


def thread_group(first: int, count: int, body: Any, span: Any = None) -> Any:
    """`body` as the work of the threads `first`, `first` + 1, ... alone."""
    return tir.AttrStmt(tir.const(first, "int32"), GROUP, tir.const(count, "int32"), body, span=span)


def as_thread_group(stmt: Any) -> tuple[int, int] | None:
    """(first, count) of the threads whose work a statement is, or None."""
    if not (isinstance(stmt, tir.AttrStmt) and stmt.attr_key == GROUP):
        return None
    return int(stmt.node), int(stmt.value)


# -- walking --------------------------------------------------------------------------------------------------


def walk(node: Any, *kinds: type) -> Iterator[Any]:
    """Every node below and including `node`, in pre-order of first meeting (statements, expressions, regions).

    `kinds`: those of these classes only; what is not asked for costs nothing.
    """
    found: list[Any] = []
    _WALK(node, [(_type_index(kind), found.append) for kind in kinds or (Any,)], [], _PRE_ORDER)
    return iter(found)


# What `tvm_ffi.structural_walk` and `structural_map` call once they have looked at their arguments, which takes longer than
# most walks: the compiler asks for those of an index, of a condition, of a bound.
_WALK = tvm_ffi.get_global_func("ffi.StructuralWalk")
_MAP = tvm_ffi.get_global_func("ffi.StructuralMap")
_PRE_ORDER = int(tvm_ffi.structural.WalkOrder.PREORDER)
_POST_ORDER = int(tvm_ffi.structural.WalkOrder.POSTORDER)


@functools.cache
def _type_index(kind: Any) -> int:
    """How TVM numbers a class of nodes; Any is every one."""
    return int(tvm_ffi.core.TypeSchema.from_annotation(kind).origin_type_index)


def holds(node: Any, *kinds: type) -> bool:
    """Whether there is a node of these classes. To look costs a tenth of a rewriting that finds nothing."""
    return next(walk(node, *kinds), None) is not None


def substitute(node: Any, values: dict[Any, Any]) -> Any:
    """`node` with variables replaced; buffers (which are variables) may be replaced by buffers."""
    if not values:
        return node
    return map_nodes(node, (ir.Var, lambda v: values.get(v, v)))


def map_nodes(node: Any, *rules: tuple[type, Callable[[Any], Any]]) -> Any:
    """Post-order rewriting: each rule is (node type, function returning the node or its replacement)."""
    return _MAP(node, [(_type_index(kind), rule) for kind, rule in rules], [], _POST_ORDER)


def free_of(node: Any, variables: Iterable[Any]) -> bool:
    """Whether `node` mentions none of `variables`."""
    wanted = set(variables)
    return not any(isinstance(n, ir.Var) and n in wanted for n in walk(node))


def analyzer() -> tvm.sym.Analyzer:
    return tvm.sym.Analyzer()
