"""The programs that turn HIP C++ into a code object, and how each is called.

ROCm's hipcc or clang, else a clang from version 17 on that has the amdgcn target, else the clang in the wheel `ziglang`.
None needs ROCm's headers or libraries: the source includes the project's own header only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

OLDEST_CLANG, NEWEST_CLANG = 17, 30  # names of programs that are looked for: clang++-17 ...
NAMES = ("hipcc", "clang", "ziglang")
# What kernels need of the compiler: no headers or libraries of ROCm, floating-point atomics of the hardware (memory of
# hipMalloc allows them), printing through the runtime's buffer. Loops are unrolled where the source says so and nowhere
# else: LLVM's own unrolling brings every load of a loop over k to the front and then spills (attention over rows of 24
# elements on gfx942: 848 spilled registers with it, none without).
FLAGS = (
    "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-O3", "-std=c++17",
    "-munsafe-fp-atomics", "-mprintf-kind=buffered", "-fno-unroll-loops",
)  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """`name` is one of NAMES; `program` the words that start it; `version` as it says itself."""

    name: str
    program: tuple[str, ...]
    version: str

    def commands(self, arch: str, options: Sequence[str]) -> list[list[str]]:
        """From kernel.hip to kernel.hsaco in the current folder.

        The clang in ziglang has no linker of its own beside it, so there assembling and linking are steps of their own.
        """
        compile = [*self.program, *FLAGS, f"--offload-arch={arch}", "-I.", *options]
        if self.name != "ziglang":
            return [[*compile, "-o", "kernel.hsaco", "kernel.hip"]]
        zig = self.program[:-1]
        assemble = [*zig, "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-c", "kernel.s", "-o", "kernel.o"]
        return [
            [*compile, "-S", "-o", "kernel.s", "kernel.hip"],
            assemble,
            [*zig, "ld.lld", "-shared", "kernel.o", "-o", "kernel.hsaco"],
        ]


@lru_cache(maxsize=8)
def find(name: str = "") -> Compiler | None:
    """The first compiler that is here, or the first of the kind `name`; None where there is none."""
    return next(
        (made for kind, program in _candidates() if name in ("", kind) if (made := _usable(kind, program))), None
    )


def _candidates() -> Iterator[tuple[str, tuple[str, ...]]]:
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    for place in (shutil.which("hipcc"), str(rocm / "bin" / "hipcc"), str(rocm / "llvm" / "bin" / "clang++")):
        if place and os.access(place, os.X_OK):
            yield "hipcc", (place,)
    for version in [*range(NEWEST_CLANG, OLDEST_CLANG - 1, -1), None]:
        place = shutil.which("clang++" if version is None else f"clang++-{version}")
        if place:
            yield "clang", (place,)
    wheel = importlib.util.find_spec("ziglang")
    if wheel is not None:
        # The wheel's own program: `python -m ziglang` would start another Python for each step.
        folder = Path((wheel.submodule_search_locations or [""])[0])
        program = folder / ("zig.exe" if sys.platform == "win32" else "zig")
        yield "ziglang", (str(program), "clang")


def _usable(kind: str, program: tuple[str, ...]) -> Compiler | None:
    """A compiler that is new enough and knows AMD GPUs."""
    said = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"clang version (\d+)(\.\d+)*", said)
    if version is None or int(version[1]) < OLDEST_CLANG:
        return None
    if kind == "clang":
        targets = subprocess.run([*program, "--print-targets"], capture_output=True, text=True, check=False).stdout
        if "amdgcn" not in targets:
            return None
    return Compiler(kind, program, f"{kind} ({version[0]})")
