"""What a GPU compilation carries from pass to pass, beside the IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tile_compiler.context import CompileContext
from tile_compiler.simt.arch import Arch, arch_of

if TYPE_CHECKING:
    from tile_compiler.simt.kernel_layouts import KernelLayouts
    from tile_compiler.simt.plan_clusters import Cluster
    from tile_compiler.simt.rasterize_grid import Panels
    from tilelang.autotuner.machine import Machine

DEFAULT_THREADS = 128


@dataclass
class SimtContext(CompileContext):
    """One compilation for a GPU.

    `layouts`: what inference found, for each kernel index. `alignments`: for each parameter the bytes that its
    address was taken to be a multiple of, because vectors access it; the host checks it before a launch.
    `shared_bytes`: for each kernel index the dynamic shared memory that a launch needs. `panels`: the order of blocks
    that a kernel asks for. `clusters`: the groups of blocks in which kernels are launched. `fixed_registers`: the kernels
    whose warps shall keep the registers that they start with. `machine`: the chip that the architecture's kernels are planned
    for, where one is known. `multiples`: for each kernel index the sizes that every call has in multiples of a number, as its
    predicates take for granted; `bounds`: what else is assumed of sizes. `waited` are the tiles that waits name;
    `direct_loads` says with how many loads to LDS each wave fills a tile.
    """

    arch: Arch = field(default_factory=lambda: arch_of("sm_80"))
    machine: Machine | None = None
    variants: bool = True
    layouts: dict[int, KernelLayouts] = field(default_factory=dict)
    shared_bytes: dict[int, int] = field(default_factory=dict)
    panels: dict[int, Panels] = field(default_factory=dict)
    clusters: dict[int, Cluster] = field(default_factory=dict)
    fixed_registers: set[int] = field(default_factory=set)
    multiples: dict[int, dict[Any, int]] = field(default_factory=dict)
    bounds: dict[int, list[Any]] = field(default_factory=dict)
    waited: list[Any] = field(default_factory=list)
    direct_loads: dict[Any, int] = field(default_factory=dict)

    @property
    def vector_bytes(self) -> int:
        """The widest access of one thread."""
        return 16

    def aligned(self, buffer: Any, size: int) -> None:
        """Record that `buffer` is accessed in vectors of `size` bytes."""
        name = str(buffer.name)
        self.alignments[name] = max(self.alignments.get(name, 1), size)
