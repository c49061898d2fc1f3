"""Devices as templates see them: `CUDA("cuda -arch=sm_80")`, `CDNA("hip -mcpu=gfx942")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang import target as targets
from tilelang.autotuner.machine import Machine, machine_of
from tilelang.carver.arch import driver
from tilelang.errors import UnknownTarget
from tilelang.target import Target

__all__ = ["CDNA", "CUDA", "TileDevice", "auto_infer_current_arch", "driver"]


@dataclass(frozen=True)
class TileDevice:
    """A GPU: `machine` has the limits of its architecture and the rates of its best-known chip."""

    target: Target
    machine: Machine

    @property
    def compute_max_core(self) -> int:
        """Multiprocessors (AMD: compute units)."""
        return self.machine.multiprocessors

    @property
    def smem_cap(self) -> int:
        """Bytes of shared memory that a block may have."""
        return self.machine.shared_per_block

    @property
    def warp_size(self) -> int:
        """Threads that run in step."""
        return 64 if self.target.kind == "hip" else 32


def CUDA(target: Any = "cuda") -> TileDevice:
    """A GPU of NVIDIA's; without an architecture that of this machine's device, else the newest mainstream one.

    UnknownTarget for another kind of target, or for an architecture whose rates nobody has written down.
    """
    return _device(target, "cuda")


def CDNA(target: Any = "hip") -> TileDevice:
    """A GPU of AMD's."""
    return _device(target, "hip")


def auto_infer_current_arch() -> TileDevice:
    """The GPU of this machine; `CUDA()` without one."""
    found = targets.resolve("auto")
    return _device(found if found.kind in ("cuda", "hip") else "cuda", found.kind if found.kind == "hip" else "cuda")


def _device(target: Any, kind: str) -> TileDevice:
    found = target if isinstance(target, Target) else targets.resolve(target)
    machine = machine_of(found) if found.kind == kind else None
    if machine is None:
        raise UnknownTarget(
            f"no {kind} device to carve tiles for",
            found=str(found),
            expected=f"a target of kind {kind} whose chip is known, and its compiler",
            repair={"cuda": 'CUDA("cuda -arch=sm_90a")', "hip": 'CDNA("hip -mcpu=gfx942")'}[kind],
        )
    return TileDevice(found, machine)
