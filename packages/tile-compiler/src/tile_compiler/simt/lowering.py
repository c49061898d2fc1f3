"""What the lowering of one operator may ask: the thread, registers of fragments, layouts, what is provable."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import tirx as tir

from tile_compiler.instructions.warpgroup_multiply import WARPGROUP
from tile_compiler.ranges import Ranges
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.kernel_layouts import KernelLayouts
from tile_compiler.simt.layout.equations import Rule
from tile_compiler.simt.operators.neighbour_atomics import JoiningGuard
from tile_compiler.simt.operators.nests import local
from tile_compiler.simt.tensor_maps import MapFacts
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir


@dataclass
class Lowering:
    """Shared by the operators of one kernel; `span`, `rule` and `temporaries` are those of the operator at hand.

    `binds` are values that the kernel computes at its start. `safe` holds what reads outside a buffer give instead of 0;
    `maps` the tensor maps that the kernel takes; `rounded` the tiles of float32 that bulk copies round to tf32.
    """

    ctx: SimtContext
    kernel: tile_ir.Kernel
    ranges: Ranges
    layouts: KernelLayouts
    tx: Any
    safe: dict[Any, Any]
    span: Any = None
    rule: Rule | None = None
    temporaries: list[Any] = field(default_factory=list)
    maps: list[tuple[Any, MapFacts]] = field(default_factory=list)
    binds: list[Any] = field(default_factory=list)
    rounded: frozenset[Any] = frozenset()
    _registers: dict[Any, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return int(self.kernel.num_threads or 1)

    def distribution(self, buffer: Any) -> Distribution:
        """The distribution of a fragment."""
        value = self.layouts.of(buffer)
        assert isinstance(value, Distribution)
        return value

    def layout(self, buffer: Any) -> Any:
        """The layout of a shared buffer."""
        return self.layouts.of(buffer)

    def registers(self, buffer: Any) -> Any:
        """The array of one thread that holds its part of a fragment; a view's is its owner's, if elements are alike."""
        owner = self.layouts.views.get(buffer)
        if owner is not None and tile_ir.dtype_name(owner) == tile_ir.dtype_name(buffer):
            return self.registers(owner)
        if buffer not in self._registers:
            size = self.distribution(buffer).steps
            made = self._registers[buffer] = local(size, tile_ir.dtype_name(buffer), str(buffer.name))
            self.ctx.tiles[made] = self.distribution(buffer).fragment
        return self._registers[buffer]

    def warpgroup(self) -> Any:
        """The number of the thread's warpgroup, in a form that the device's compiler knows to be the same in a warp."""
        if not self.binds:
            var = tir.Var("warpgroup", "int32")
            number = tir.call_extern("int32", "tl::uniform", self.tx // WARPGROUP)
            self.binds.append(tir.Bind(var, number, span=self.kernel.span))
        return self.binds[0].var

    def shared(self, shape: list[int], dtype: str, name: str) -> Any:
        """New row-major shared memory for the operator at hand."""
        buffer = tir.decl_buffer(shape, dtype, name=name, scope="shared.dyn", layout=None)
        self.layouts.add_linear(buffer)
        self.temporaries.append(tir.AllocBuffer(buffer))
        return buffer

    def tensor_map(self, facts: MapFacts) -> Any:
        """The kernel's parameter that is this tensor map; maps that say the same are one."""
        for var, known in self.maps:
            if known.same_as(facts):
                return var
        name = f"{facts.tensor.name}_map"
        taken = {str(var.name) for var, _ in self.maps}
        unique = next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 1))) if n not in taken)
        var = tir.Var(unique, "handle")
        self.maps.append((var, facts))
        return var

    @cached_property
    def _uniformity(self) -> Uniformity:
        return Uniformity(self.kernel)

    def varies(self, value: Any) -> bool:
        """Whether an expression of the kernel as it was before lowering may differ between the block's threads."""
        return self._uniformity.varies(value)

    def simplify(self, value: Any) -> Any:
        return self.ranges.simplify(value)

    def guard(self, stmt: Any) -> Any:
        """`stmt` with conditions on the accesses that may leave their buffer."""
        return JoiningGuard(self.ranges, self.safe, self.ctx).body(stmt)
