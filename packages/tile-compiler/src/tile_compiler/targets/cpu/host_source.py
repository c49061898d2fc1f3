"""C and C++ text from `T.import_source`, compiled for the host by a C++ compiler of the machine.

Only kernels that bring source of their own need one: CXX, c++, g++, clang++ on PATH, or `pip install ziglang`. CUDA and HIP
function markers (`__device__`, `__forceinline__`, ...) mean nothing here, so plain device functions compile unchanged.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tile_compiler.errors import CompileError

# What the text may use without including anything; the functions keep their C names for T.call_extern.
_PRELUDE = """\
#include <stdint.h>
#include <stddef.h>
#include <math.h>
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define TL_DEVICE
#define TL_HOST 1
"""
# An object that the runtime can map: position independent, without guards or tables that need a C runtime.
_FLAGS = (
    "-c -O2 -fPIC -fno-stack-protector -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-exceptions -fno-rtti "
    "-fno-plt -fcf-protection=none -ffp-contract=off -fno-inline-functions-called-once"
).split()


def compiler() -> list[str] | None:
    """The command of a C++ compiler on this machine, or None."""
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    return None


def compile_sources(sources: Sequence[str]) -> bytes:
    """One ELF object with the functions of all texts, each text once.

    Raises CompileError when there is no compiler or the text does not compile; the compiler's messages count lines of
    the text itself.
    """
    command = compiler()
    if command is None:
        raise CompileError(
            "T.import_source needs a C++ compiler on the CPU target, and this machine has none",
            found="none of c++, g++, clang++ on PATH, CXX not set",
            expected="any C++ compiler",
            repair="pip install ziglang, or give T.import_source(..., meaning={...}) and run with execution='interpret'",
        )
    unique = list(dict.fromkeys(sources))
    parts = [_PRELUDE]
    for number, text in enumerate(unique):
        # Lines that include something must stay outside of the linkage block.
        includes = [line for line in text.splitlines() if line.lstrip().startswith("#include")]
        body = "\n".join("" if line.lstrip().startswith("#include") else line for line in text.splitlines())
        parts += [*includes, 'extern "C" {', f'#line 1 "imported source {number + 1}"', _exported(body), "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "imported.cpp", Path(folder) / "imported.o"
        source.write_text("\n".join(parts))
        done = subprocess.run([*command, *_FLAGS, str(source), "-o", str(target)], capture_output=True, text=True)
        if done.returncode:
            raise CompileError(
                "the text of T.import_source does not compile for the CPU",
                found=done.stderr.strip()[:2000],
                expected="C or C++ functions of plain types",
                repair="guard device-only text with #ifndef TL_HOST",
            )
        return target.read_bytes()


def _exported(body: str) -> str:
    """`static` and `inline` functions would be dropped or hidden: they are what T.call_extern calls."""
    import re

    return re.sub(
        r"^(\s*)(?:(?:static|inline|__forceinline__|__device__|__host__|TL_DEVICE)\s+)+", r"\1", body, flags=re.M
    )
