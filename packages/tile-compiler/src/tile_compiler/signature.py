"""What a launch of a kernel knows: the call's signature (`tilelang.ir.signature`), host values, workspaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.cfamily.memory import READ_ONLY_ARGUMENTS
from tile_compiler.grid_barriers import ZERO
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import is_call
from tilelang.ir import signature as call_signature
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

TENSOR_MAP = "tl.tensor_map"
"""The host's call that makes a tensor map: the tensor's data, the map's shape and its strides, fastest first."""


@dataclass
class Signature:
    """The manifest's view of a function.

    `call` has the manifest's params, dims and outputs; `names` maps every integer that is known at a launch to its
    manifest expression; `host_values` are the host's Binds in order; `workspaces` its global scratch buffers,
    of which those in `zeroed` hold zeros at first;
    `tensor_maps` the manifest's entry for each variable that is a tensor map, in order.
    """

    call: dict[str, Any]
    names: dict[Any, Any]
    host_values: dict[Any, Any]
    workspaces: list[Any]
    params: dict[Any, str]
    tensor_maps: dict[Any, dict[str, Any]] = field(default_factory=dict)
    zeroed: set[Any] = field(default_factory=set)

    def expression(self, value: Any) -> Any:
        """An integer of the host as a manifest expression."""
        return call_signature.expression(value, self.names)

    def workspace(self) -> list[dict[str, Any]]:
        """The manifest's workspaces, in order."""
        return [{"bytes": self._bytes(b), "zero": b in self.zeroed} for b in self.workspaces]

    def _bytes(self, buffer: Any) -> Any:
        dtype = dtype_of(tile_ir.dtype_name(buffer))
        total: Any = 1
        for size in buffer.ty.shape:
            total = ["*", total, self.expression(size)]
        return ["ceildiv", total, dtype.per_byte] if dtype.bits < 8 else ["*", total, dtype.itemsize]


def signature_of(func: tir.PrimFunc, lowered: tir.PrimFunc) -> Signature:
    """The signature of `func`; `lowered` is what it became, from which reads and writes are taken."""
    uses = buffer_uses(lowered)
    users = call_signature.user_parameters(func)
    params = {p: str(d["name"]) for p, d in zip(users, call_signature.described(func))}
    access = {name: uses.get(p, "none") for p, name in params.items() if tile_ir.is_buffer(p)}
    names = dict(call_signature.variables(func))
    host_values: dict[Any, Any] = {}
    workspaces: list[Any] = []
    zeroed: set[Any] = set()
    for stmt in tile_ir.statements(func.body):
        if isinstance(stmt, tir.Bind) and is_call(stmt.value, TENSOR_MAP):
            continue
        if isinstance(stmt, tir.Bind):
            host_values[stmt.var] = stmt.value
            if str(stmt.value.ty).startswith(("int", "uint", "bool")):
                names[stmt.var] = call_signature.expression(stmt.value, names)
        elif isinstance(stmt, tir.AllocBuffer):
            workspaces.append(stmt.buffer)
            if stmt.annotations and ZERO in stmt.annotations:
                zeroed.add(stmt.buffer)
    made = Signature(call_signature.signature(func, access), names, host_values, workspaces, params, zeroed=zeroed)
    made.tensor_maps = {s.var: _tensor_map(s.value, made) for s in _tensor_maps(lowered)}
    return made


def _tensor_maps(func: tir.PrimFunc) -> list[tir.Bind]:
    stmts = tile_ir.statements(func.body)
    return [s for s in stmts if isinstance(s, tir.Bind) and is_call(s.value, TENSOR_MAP)]


def _tensor_map(call: Any, signature: Signature) -> dict[str, Any]:
    """The manifest's entry: elements of a byte are bytes, as a copy does not look into them; a map may round float32 to tf32."""
    data, *sizes = call.args
    attrs = tile_ir.attrs_of(call)
    buffer, rank = data.args[0], len(attrs["box"])
    dtype = dtype_of(tile_ir.dtype_name(buffer))
    values = [signature.expression(size) for size in sizes]
    return {
        "param": signature.params[buffer],
        "dtype": "uint8" if dtype.bits == 8 else attrs.get("dtype", str(dtype)),
        "box": attrs["box"],
        "shape": values[:rank],
        "strides": values[rank:],
        "swizzle": attrs["swizzle"],
    }


def buffer_uses(func: tir.PrimFunc) -> dict[Any, str]:
    """How each buffer's storage is used: `r`, `w` or `rw`. A buffer whose address is taken may be read and written,
    but for addresses that a function of the device header only reads."""
    roots = alias_roots(func.body)
    mapped = {bind.var: bind.value.args[0].args[0] for bind in _tensor_maps(func)}
    reads: set[Any] = set()
    writes: set[Any] = set()
    sources: set[Any] = set()  # addresses that are only read from
    for node in tile_ir.walk(func.body, ir.Call):
        if is_call(node, "tirx.call_extern"):
            name = str(node.args[0].value).partition("<")[0]
            for argument in node.args[1:]:
                if isinstance(argument, ir.Var) and argument in mapped and name != "tl::prefetch_tensor_map":
                    (writes if name == "tl::tma_store" else reads).add(mapped[argument])
            positions = READ_ONLY_ARGUMENTS.get(name, ())
            sources.update(node.args[1 + position] for position in positions)
    for node in tile_ir.walk(func.body, tir.BufferStore, ir.TensorLoad, ir.Call):
        if isinstance(node, tir.BufferStore):
            writes.add(roots.get(node.buffer, node.buffer))
        elif isinstance(node, ir.TensorLoad):
            reads.add(roots.get(node.source, node.source))
        elif is_call(node, "tirx.address_of"):
            taken = node.args[0].source if isinstance(node.args[0], ir.TensorLoad) else node.args[0]
            reads.add(roots.get(taken, taken))
            if node not in sources:
                writes.add(roots.get(taken, taken))
    both = reads | writes
    return {b: ("r" if b in reads else "") + ("w" if b in writes else "") for b in both}
