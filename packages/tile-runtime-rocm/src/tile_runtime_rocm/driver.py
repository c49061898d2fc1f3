"""The AMD GPU driver and the HIP runtime: are they there, and which devices do they offer?

Devices are read from the kernel driver's topology in sysfs, which says each one's architecture and needs no library
(the HIP runtime has the architecture only in a structure whose form changed between releases). Its fields:
https://www.kernel.org/doc/html/latest/gpu/amdgpu/index.html, drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import NamedTuple

LIBRARY = "amdhip64.dll" if sys.platform == "win32" else "libamdhip64.so"
TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


class Found(NamedTuple):
    """One device, in the kernel's order (HIP_VISIBLE_DEVICES is not applied)."""

    node: int
    arch: str
    wave: int


def arch_name(version: int) -> str:
    """The kernel's `gfx_target_version` as LLVM names it: 90402 -> "gfx942", 90010 -> "gfx90a"."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def devices() -> list[Found]:
    """The machine's GPUs; none where the kernel driver is absent. CPUs are nodes too, with version 0."""
    found = []
    nodes = TOPOLOGY.iterdir() if TOPOLOGY.is_dir() else []
    for node in sorted((path for path in nodes if path.name.isdecimal()), key=lambda path: int(path.name)):
        try:
            rows = [line.split() for line in (node / "properties").read_text().splitlines()]
        except OSError:
            continue  # a node of another container may not be read
        facts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
        if facts.get("gfx_target_version", 0) > 0:
            found.append(Found(int(node.name), arch_name(facts["gfx_target_version"]), facts.get("wave_front_size", 0)))
    return found


def runtime_version() -> str | None:
    """Version of the HIP runtime library, as "7.0.2"; None where it cannot be opened or does not answer."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int()
    if library.hipRuntimeGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 10_000_000}.{number.value // 100_000 % 100}.{number.value % 100_000}"
