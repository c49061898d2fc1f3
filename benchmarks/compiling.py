"""What compiling a kernel costs, and what running it in the emulator does: `python benchmarks/compiling.py [--repeats N]`.

Every line is a process of its own that has imported everything and compiled nothing: CPU seconds from the traced function
to the artifact, its binary included, with the disk cache off. The emulator's lines: CPU seconds of the host compiler on the
generated text, its linker included, and wall seconds of a launch with all checks on. Medians over processes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ARCHS = ("cuda -arch=sm_80", "cuda -arch=sm_90a", "hip -mcpu=gfx942")
EMULATED = "cuda -arch=sm_80"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "KERNEL", "TARGET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        what, kernel, target = arguments.one
        print(json.dumps({"compile": compiled, "emulate": emulated}[what](kernel, target)))
        return
    tasks = [("compile", kernel, target) for kernel in KERNELS for target in ARCHS]
    tasks += [("emulate", kernel, EMULATED) for kernel in SMALL]
    for what, kernel, target in tasks:
        runs = [_process(what, kernel, target) for _ in range(arguments.repeats)]
        figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(
            f"{what:8} {kernel:10} {target:18} " + ", ".join(f"{n} {v:.2f} s" for n, v in figures.items()), flush=True
        )


def _process(*task: str) -> dict[str, float]:
    environment = dict(os.environ) | {"TILELANG_DISABLE_CACHE": "1", "PYTHONPATH": str(HERE.parent / "examples")}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    command = [sys.executable, __file__, "--one", *task]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def _gemm(_: int) -> Any:
    from gemm import matmul

    return matmul(4096, 4096, 4096, 128, 128, 32, 2)


def _attention(keys: int) -> Any:
    from flash_attention import flash_attention

    return flash_attention(4, 32, 32, 4096, 4096, 128, True, 64, 2 * keys)


def _mla(keys: int) -> Any:
    from mla_decode import mla_decode

    return mla_decode(64, 128, 1, 4096, 512, 64, 16, keys)


#: The kernels of the goals: GEMM, FlashAttention forward, MLA decode, by the keys of a tile (attention: twice as many).
KERNELS: dict[str, Callable[[int], Any]] = {"gemm": _gemm, "attention": _attention, "mla": _mla}


def compiled(kernel: str, target: str) -> dict[str, float]:
    """CPU seconds from the traced function to the artifact."""
    import tilelang

    func = KERNELS[kernel](16 if target.startswith("hip") else 32)  # 64 KiB of shared memory hold no more there
    _import_all()
    start = time.process_time()
    tilelang.lower(func, target=target)
    # Compilers that run as processes of their own count too.
    return {"CPU": time.process_time() - start + _children()}


def _import_all() -> None:
    """Every module of the compiler, and the runtimes of its targets."""
    import tile_compiler

    for module in pkgutil.walk_packages(tile_compiler.__path__, "tile_compiler."):
        importlib.import_module(module.name)
    for runtime in ("tile_runtime_cuda.build", "tile_runtime_rocm.build", "tile_runtime_cpu.emulator"):
        importlib.import_module(runtime)


def _children() -> float:
    """CPU seconds of the processes that this one has started and waited for."""
    return os.times().children_user + os.times().children_system


def _small_gemm() -> tuple[Any, list[tuple[int, ...]]]:
    from gemm import matmul

    return matmul(256, 256, 256), [(256, 256)] * 3


def _small_attention() -> tuple[Any, list[tuple[int, ...]]]:
    from flash_attention import flash_attention

    return flash_attention(1, 2, 2, 256, 256, 64, False, 64, 64), [(1, 256, 2, 64)] * 4


SMALL: dict[str, Callable[[], tuple[Any, list[tuple[int, ...]]]]] = {"gemm": _small_gemm, "attention": _small_attention}


def emulated(kernel: str, target: str) -> dict[str, float]:
    """CPU seconds of the host compiler, and wall seconds of a launch."""
    import numpy as np

    import tilelang
    from tile_runtime_cpu.emulator.compiler import host_compiler, runtime_library

    func, shapes = SMALL[kernel]()
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    runtime_library(host_compiler())  # once for all kernels
    before = _children()
    made = tilelang.compile(func, target=target, execution="emulate")
    host = _children() - before
    made(*arguments)  # the first one starts the processes that launches share
    start = time.perf_counter()
    made(*arguments)
    return {"host compiler": host, "launch": time.perf_counter() - start}


if __name__ == "__main__":
    main()
