"""The kernels of a lowered function: what the printer needs of each, and what the manifest passes to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily.element_types import split
from tile_compiler.cfamily.printer import KernelInput
from tile_compiler.rewrite import RELEASE, is_call, substitute
from tile_compiler.signature import Signature
from tilelang.ir import tile_ir


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel, its manifest arguments, and the bytes of dynamic shared memory that its buffers span."""

    index: int
    kernel: KernelInput
    args: list[Any]
    shared_bytes: int

    def entry(self, binary: str, **more: Any) -> dict[str, Any]:
        """The manifest's launch, but for the grid."""
        block = [int(extent) for _, extent in self.kernel.threads]
        return {
            "binary": binary,
            "symbol": self.kernel.symbol,
            "block": [*block, 1, 1, 1][:3],
            "shared": self.shared_bytes,
            "args": self.args,
            **more,
        }


def kernel_launches(func: tir.PrimFunc, signature: Signature, *, narrow: bool = False) -> list[KernelLaunch]:
    """The kernels of `func` in order, named `<function>_kernel`, or `<function>_kernel_<i>` where there are several.

    `narrow`: the launch's guard keeps offsets into parameters within int32.
    """
    name = str(func.attrs["global_symbol"])
    kernels = tile_ir.kernels(func)
    made = []
    for kernel in kernels:
        symbol = f"{name}_kernel" if len(kernels) == 1 else f"{name}_kernel_{kernel.index}"
        made.append(_launch(func, kernel, symbol, signature, narrow))
    return made


def _launch(
    func: tir.PrimFunc, kernel: tile_ir.Kernel, symbol: str, signature: Signature, narrow: bool
) -> KernelLaunch:
    inline = {v: e for v, e in signature.host_values.items() if v not in signature.names}
    body = substitute(kernel.body, inline)
    views = [s for s in tile_ir.statements(func.body) if isinstance(s, tir.DeclBuffer)]
    used = mentioned(body)
    aliases: list[Any] = []
    for view in reversed(views):  # a view may show a view before it
        if view.buffer in used:
            aliases.insert(0, view)
            used |= mentioned(view)
    buffers = [b for b in (*signature.params, *signature.workspaces) if tile_ir.is_buffer(b) and b in used]
    known = [p for p in func.params if not tile_ir.is_buffer(p)] + [v for v in signature.host_values if v not in inline]
    scalars = [v for v in known if v in used]
    maps = [v for v in signature.tensor_maps if v in used]
    made = KernelInput(
        symbol=symbol,
        params=tuple(buffers),
        scalars=tuple(scalars),
        grid=kernel.grid,
        threads=kernel.threads,
        body=body,
        aliases=tuple(aliases),
        nothing_negative=frozenset(_extents(func)),
        narrow=frozenset(b for b in buffers if b in signature.params) if narrow else frozenset(),
        maps=tuple(maps),
        # ptxas ignores a change of registers unless it knows how many a thread starts with (PTX ISA, setmaxnreg).
        min_blocks=1 if _changes_registers(body) else None,
        beside_others=_calls(body, *WAITS_FOR_OTHERS) or _meets_cluster(body),
    )
    numbers = {var: number for number, var in enumerate(signature.tensor_maps)}
    args = [
        *(_pointer(b, signature) for b in buffers),
        *(_scalar(v, signature) for v in scalars),
        *(["tensormap", numbers[v]] for v in maps),
    ]
    return KernelLaunch(kernel.index, made, args, shared_span(body))


#: Calls behind which memory holds what other blocks or earlier launches have written meanwhile.
WAITS_FOR_OTHERS = ("tl::sync_grid", "tl::cluster_wait", "tl::mbarrier_wait_others", "tl::grid_dependency_wait")


def _changes_registers(body: Any) -> bool:
    """Whether a kernel hands registers from warps to warps (`tl::register_limit_increase<n>`)."""
    return _calls(body, "tl::register_limit_")


def _meets_cluster(body: Any) -> bool:
    """Whether a kernel has a T.cluster_sync of the user's, behind which it may read what others wrote."""
    calls = (n for n in tile_ir.walk(body, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(str(c.args[0].value) == "tl::cluster_sync" and RELEASE in tile_ir.attrs_of(c) for c in calls)


def _calls(body: Any, *names: str) -> bool:
    """Whether a kernel calls a function whose name begins so."""
    calls = (n for n in tile_ir.walk(body, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(str(call.args[0].value).startswith(names) for call in calls)


def mentioned(node: Any) -> set[Any]:
    """Every variable and buffer below a node, with those in the shapes and strides of the buffers."""
    found = set(tile_ir.walk(node, ir.Var))
    found |= {n.buffer for n in tile_ir.walk(node, tir.DeclBuffer, tir.AllocBuffer)}
    for buffer in [v for v in found if tile_ir.is_buffer(v)]:
        for size in (*buffer.ty.shape, *(buffer.ty.strides or ())):
            found |= set(tile_ir.walk(size, ir.Var))
    return found


def _extents(func: tir.PrimFunc) -> set[Any]:
    """The dynamic dimensions: variables in the shapes of parameters."""
    sizes = [s for p in func.params if tile_ir.is_buffer(p) for s in (*p.ty.shape, *(p.ty.strides or ()))]
    return {v for s in sizes for v in tile_ir.walk(s, ir.Var)}


def shared_span(body: Any) -> int:
    """The end of the last shared buffer."""
    end = 0
    for node in tile_ir.walk(body, tir.AllocBuffer):
        if str(node.buffer.scope()).startswith("shared"):
            notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
            end = max(end, int(notes.get("tl.offset", 0)) + buffer_bytes(node.buffer))
    return end


def buffer_bytes(buffer: Any) -> int:
    """What a buffer of known extents takes."""
    element, lanes = split(tile_ir.dtype_name(buffer))
    size = element.bytes * lanes
    for extent in buffer.ty.shape:
        size *= int(extent)
    return size


def _pointer(buffer: Any, signature: Signature) -> list[Any]:
    if buffer in signature.params:
        return ["param", signature.params[buffer]]
    return ["workspace", next(i for i, w in enumerate(signature.workspaces) if w.same_as(buffer))]


def _scalar(var: Any, signature: Signature) -> list[Any]:
    """A user's scalar, or an integer known at the launch, in the kernel's own type (int32 dims are passed as such)."""
    if var in signature.params:
        return ["param", signature.params[var]]
    return ["value", str(var.ty), signature.names[var]]
