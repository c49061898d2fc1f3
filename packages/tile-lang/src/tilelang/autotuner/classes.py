"""Keys of tuning results: the device, and the class of the sizes that were tuned for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilelang.autotuner.configurations import plain
from tilelang.target import DEFAULT_ARCH, Target

EXACT_BELOW = 64  # dims of heads, groups, flags: each value is a class of its own
FACTOR = 8  # rows of a multiple of 8 elements can be moved in wide pieces, whatever the type


def shape_class(arguments: Mapping[str, Any], *, exact: bool = False, ignore: tuple[str, ...] = ()) -> str:
    """ "M=3073..4096 by 8, K=512, dtype=float16": the arguments of a call, sizes rounded to classes.

    From 64 on, an integer belongs to the class that ends at the next power of two or at one and a half times one: what
    is best for 4000 rows is nearly always best for 4096, and classes are at most half as large again as their start.
    `by 8` keeps sizes that allow wide copies apart from others.
    """
    parts = [f"{n}={_class_of(v, exact)}" for n, v in arguments.items() if n not in ignore]
    return ", ".join(parts) or "defaults"


def _class_of(value: Any, exact: bool) -> str:
    if isinstance(value, Mapping):  # a tensor: its type and extents
        extents = " x ".join(_class_of(n, exact) for n in value["shape"])
        return f"{value['dtype']}[{extents}]"
    if exact or isinstance(value, bool) or not isinstance(value, int) or value < EXACT_BELOW:
        return str(plain(value))
    top = EXACT_BELOW
    below = top * 3 // 4
    while value > top:
        below, top = top, (top * 3 // 2 if top & (top - 1) == 0 else top * 4 // 3)
    if value == top and top == EXACT_BELOW:
        return f"{top}"
    return f"{below + 1}..{top}" + (f" by {FACTOR}" if value % FACTOR == 0 else "")


def device_key(target: Target) -> str | None:
    """The device that a target's kernels run on here, "NVIDIA H200, sm_90a"; None where there is none."""
    from tile_runtime import registry
    from tile_runtime.errors import TileRuntimeError

    if target.kind == "cpu":
        return f"{_processor()}, {_threads()} threads"
    try:
        devices = registry.device(target.device).describe().get("devices") or []
    except TileRuntimeError:
        return None
    name = next((str(d["name"]) for d in devices if "name" in d), None)
    return None if name is None else f"{name}, {arch_of(target)}"


def arch_of(target: Target) -> str:
    """The architecture that a target means on this machine."""
    from tile_runtime import registry
    from tile_runtime.errors import TileRuntimeError

    if target.arch:
        return target.arch
    try:
        return str(registry.device(target.device).arch())
    except TileRuntimeError:
        return DEFAULT_ARCH[target.kind]


def _processor() -> str:
    from tile_runtime import registry

    level = registry.device("cpu").arch()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return str(level)
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{name}, {level}" if name else str(level)


def _threads() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
