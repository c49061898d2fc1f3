"""What became of a kernel on its device: registers and spills, PTX, the machine's own instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_runtime import registry
from tilelang import target as targets
from tilelang.errors import InvalidArgument

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact
    from tilelang.options import Options
    from tilelang.target import Target

NEEDED = ("registers", "spills", "threads")


class DeviceCode:
    """The part of a kernel that answers such questions; each raises InvalidArgument for a kernel without such code.

    Of a kernel that consists of several launches, numbers are those of the launch that has most. Texts are those of the
    first variant (`kernel.report()` tells of all).
    """

    target: Target
    options: Options

    @property
    def artifact(self) -> Artifact:
        raise NotImplementedError

    @property
    def resource_usage(self) -> dict[str, dict[str, Any]]:
        """By the name of each kernel: threads, registers, bytes of spills and of shared memory, blocks that fit at once."""
        found = {
            symbol: dict(facts)
            for symbol, facts in self.artifact.manifest.resources.items()
            if all(name in facts for name in NEEDED)
        }
        if not found:
            raise self._without("registers")
        return found

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self._most("registers")

    @property
    def n_spills(self) -> int:
        """Bytes that a thread stores and loads for want of registers (AMD: registers spilled)."""
        return self._most("spills")

    @property
    def n_max_threads(self) -> int:
        """Threads of a block."""
        return self._most("threads")

    def _most(self, name: str) -> int:
        return max(int(facts[name]) for facts in self.resource_usage.values())

    def get_ptx(self) -> str:
        """The PTX that the kernel's text becomes; compiled for this call, which needs no device."""
        entry = targets.compiler_for(self.target.kind)
        make = None if entry is None or self.target.kind != "cuda" else getattr(entry.load(), "ptx", None)
        if make is None:
            raise self._without("PTX")
        return str(make(self.artifact, self.options))

    def get_sass(self) -> str:
        """The instructions of the machine, by `nvdisasm` (the wheel nvidia-cuda-nvdisasm, or a toolkit)."""
        cubin = next((b.file for b in self.artifact.manifest.binaries if b.kind == "cubin"), None)
        if cubin is None:
            raise self._without("machine code of NVIDIA's")
        device: Any = registry.device("cuda")
        return str(device.listing(self.artifact.read(cubin)))

    def show_ptx(self) -> None:
        """Print the PTX."""
        print(self.get_ptx())

    def show_sass(self) -> None:
        """Print the machine's instructions."""
        print(self.get_sass())

    def export_ptx(self, path: Any) -> None:
        """Write the PTX to a file."""
        Path(path).write_text(self.get_ptx(), encoding="utf-8")

    def export_sass(self, path: Any) -> None:
        """Write the machine's instructions to a file."""
        Path(path).write_text(self.get_sass(), encoding="utf-8")

    def _without(self, what: str) -> InvalidArgument:
        how = self.options.execution if self.options.execution != "device" else str(self.target)
        return InvalidArgument(
            f"{self.artifact.manifest.name} has no {what}",
            found=f"a kernel for {how}",
            expected="one that was compiled for a GPU",
            repair='tilelang.compile(func, target="cuda -arch=sm_90a"): no GPU is needed for that',
        )
