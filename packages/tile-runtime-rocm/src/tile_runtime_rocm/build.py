"""HIP C++ to a code object, without a GPU, a driver or ROCm. compilers.py says with what.

The caller brings the texts of the headers. What a kernel uses is read from the code object; errors name the line of the
source and the remark above it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import compilers, metadata
from .errors import BuildError

SOURCE_NAME = "kernel.hip"
_ARCH = re.compile(r"gfx[0-9a-f]{3,4}")


@dataclass(frozen=True)
class CodeObject:
    """A binary for one architecture. `resources`: kernel name -> what metadata.resources says of it."""

    data: bytes
    arch: str
    compiler: str
    log: str
    resources: dict[str, dict[str, int]] = field(default_factory=dict)


def build(
    source: str,
    *,
    arch: str,
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    compiler: str = "",
) -> CodeObject:
    """Compile `source` for `arch` ("gfx90a", "gfx942"). `headers` are texts by the name that `#include` gives.

    `compiler` is "hipcc", "clang", "ziglang", or "" for the first of these that is here. Raises BuildError.
    """
    if _ARCH.fullmatch(arch) is None:
        raise BuildError(f"{arch!r} is no AMD architecture; expected one such as gfx90a or gfx942")
    if compiler and compiler not in compilers.NAMES:
        raise BuildError(f"no compiler {compiler!r} for HIP; expected one of {', '.join(compilers.NAMES)}")
    found = compilers.find(compiler)
    if found is None:
        wanted = compiler or "hipcc, clang or ziglang"
        raise BuildError(
            f"no compiler for AMD GPUs is here: {wanted} was looked for. Install one of: ROCm (hipcc on PATH, or "
            f"ROCM_PATH), clang {compilers.OLDEST_CLANG} or newer with the amdgcn target and lld (Debian: clang-19 "
            "lld-19), or `pip install tile-runtime-rocm[compile]`, which brings ziglang"
        )
    with tempfile.TemporaryDirectory(prefix="tile-hip-") as name:
        folder = Path(name)
        for file, text in {**(headers or {}), SOURCE_NAME: source}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        log = ""
        for command in found.commands(arch, options):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            log += done.stderr + done.stdout
            if done.returncode != 0:
                raise BuildError(explained(found.version, log, source))
        data = (folder / "kernel.hsaco").read_bytes()
    try:
        return CodeObject(data, arch, found.version, log, metadata.resources(data))
    except (ValueError, KeyError) as error:
        raise BuildError(f"{found.version} made a code object that cannot be read: {error}") from error


_PLACE = re.compile(rf"{re.escape(SOURCE_NAME)}:(\d+):\d+: (?:fatal )?error: (.*)")
_IN_HEADER = re.compile(r"^(?:\./)?(\S+):(\d+):\d+: (?:fatal )?error: (.*)", re.MULTILINE)


def explained(compiler: str, log: str, source: str) -> str:
    """The first error, with its line of the source and the last remark above it (the user's own statement)."""
    match = _PLACE.search(log)
    if match is None:
        header = _IN_HEADER.search(log)
        if header is not None:
            return f"{compiler} refused the kernel: {header[3].strip()}\n  --> {header[1]}:{header[2]}"
        lines = [s for s in log.splitlines() if "error" in s.lower()] or log.splitlines() or ["no reason given"]
        return f"{compiler} refused the kernel: {lines[0].strip()}"
    number, said = int(match[1]), match[2].strip()
    lines = source.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    above = (line.strip() for line in reversed(lines[: number - 1]))
    remark = next((line.lstrip("/ ") for line in above if line.startswith("//")), "")
    origin = f"\n  in: {remark}" if remark else ""
    return f"{compiler} refused the kernel: {said}\n  --> {SOURCE_NAME}:{number}: {text}{origin}"
