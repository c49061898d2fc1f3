"""CUDA C++ to a cubin, without a GPU or a driver: NVRTC from its wheel, or nvcc on request.

The caller brings the texts of the headers, so that nothing is read from a toolkit. What ptxas says about registers,
spills and shared memory is read off its log; errors name the line of the source and the remark above it.

Sources: https://docs.nvidia.com/cuda/nvrtc/ (functions, options), https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/
("Resource usage").
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tile_runtime.errors import TileRuntimeError

from . import nvrtc
from .notes import Note, in_source, notes_of

SOURCE_NAME = "kernel.cu"
OLDEST = 75  # NVRTC and nvcc 13 dropped sm_50 to sm_72
_ARCH = re.compile(r"sm_(\d+)[af]?")
_MINIMAL = ("--minimal",)
_ANEW = "--no-cache"
_KNOWS_MINIMAL = (12, 4)


class BuildError(TileRuntimeError, RuntimeError):
    """A device compiler is missing, or it refused its input."""

    code = "TLR050"


@dataclass(frozen=True)
class Cubin:
    """A binary for one architecture. `resources`: kernel name -> registers, stack, spills, shared, barriers (ints).

    `ptx` is the text it was made of, with a zero byte at its end as the driver wants it; nvcc leaves none. `notes`: what
    ptxas says of slow code, with lines of the source (0 with nvcc).
    """

    data: bytes
    arch: str
    compiler: str
    log: str
    ptx: bytes
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def min_driver(self) -> int | None:
        """The oldest driver that loads it: of the compiler's own major version, any minor one.

        CUDA Compatibility guide, "Minor Version Compatibility". None where the compiler did not say its version.
        """
        major = re.search(r" (\d+)\.\d+", self.compiler)
        return int(major[1]) * 1000 if major else None


def build(
    source: str,
    *,
    arch: str,
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    compiler: str = "nvrtc",
    minimal: bool = False,
) -> Cubin:
    """Compile `source` for `arch` ("sm_80", "sm_90a", ...). `headers` are texts by the name that `#include` gives.

    `compiler` is "nvrtc" or "nvcc". `minimal`: the text uses neither textures nor the CUDA runtime's functions and types,
    which NVRTC otherwise declares first (its guide, "Supported Compile Options": --minimal). Raises BuildError.
    """
    check_arch(arch)
    if compiler not in ("nvrtc", "nvcc"):
        raise BuildError(f"no compiler {compiler!r} for CUDA; expected 'nvrtc' or 'nvcc'")
    run = _with_nvrtc if compiler == "nvrtc" else _with_nvcc
    if minimal and compiler == "nvrtc":
        options = [*_MINIMAL, *options]
    data, ptx, log, version = run(source, arch, headers or {}, options)
    notes = notes_of(log)
    if notes and compiler == "nvrtc":  # once more, with line information, which changes no code
        _, located, said, _ = run(source, arch, headers or {}, [*options, "--generate-line-info"])
        notes = [in_source(note, located.decode(errors="replace")) for note in notes_of(said)]
    else:
        notes = [replace(note, line=0) for note in notes]
    return Cubin(data, arch, version, log, ptx, resources_of(log), tuple(dict.fromkeys(notes)))


def check_arch(arch: str) -> None:
    """Raises BuildError for what is no architecture, or one that the compilers of CUDA 13 have dropped."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise BuildError(f"{arch!r} is no CUDA architecture; expected one such as sm_80 or sm_90a")
    if int(match[1]) < OLDEST:
        raise BuildError(
            f"{arch} is too old: the compilers of CUDA 13 build for sm_{OLDEST} (Turing) and newer; "
            "a GPU of that age runs none of the kernels here"
        )


# -- the two compilers ---------------------------------------------------------------------------------------------


def _with_nvrtc(
    source: str, arch: str, headers: Mapping[str, str], options: Sequence[str]
) -> tuple[bytes, bytes, str, str]:
    try:
        library = nvrtc.library()
    except nvrtc.NotFound as error:
        raise BuildError(str(error)) from error
    known = library.architectures()
    match = _ARCH.fullmatch(arch)
    if match is not None and int(match[1]) not in known:
        names = ", ".join(f"sm_{number}" for number in known)
        raise BuildError(f"NVRTC {library.version} does not build for {arch}; it builds for {names}")
    if library.number < _KNOWS_MINIMAL:
        options = [option for option in options if option not in _MINIMAL]
    flags = [f"--gpu-architecture={arch}", "--std=c++17", "-default-device", "--ptxas-options=-v", *options]
    data, ptx, log = library.compile(source, SOURCE_NAME, headers, flags)
    if data is not None and "__global__" in source and not resources_of(log):
        # Where there is a driver, NVRTC keeps what it made in the driver's cache, but not what ptxas said of it: registers,
        # spills, serialized products. One that does not know the option makes nothing of the second call.
        anew = library.compile(source, SOURCE_NAME, headers, [*flags, _ANEW])
        data, ptx, log = anew if anew[0] is not None else (data, ptx, log)
    if data is None:
        raise BuildError(explained(f"NVRTC {library.version}", log, source))
    return data, ptx, log, f"nvrtc {library.version}"


def _with_nvcc(
    source: str, arch: str, headers: Mapping[str, str], options: Sequence[str]
) -> tuple[bytes, bytes, str, str]:
    program = shutil.which("nvcc")
    if program is None:
        raise BuildError("nvcc is not on PATH; install a CUDA toolkit, or compile with NVRTC")
    with tempfile.TemporaryDirectory(prefix="tile-cuda-") as name:
        folder = Path(name)
        for file, text in {**headers, SOURCE_NAME: source}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        flags = ["-cubin", f"-arch={arch}", "-std=c++17", "-O3", "-Xptxas", "-v", "-I.", *options]
        command = [program, *flags, "-o", "kernel.cubin", SOURCE_NAME]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        log = done.stderr + done.stdout
        if done.returncode != 0:
            raise BuildError(explained("nvcc", log, source))
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        release = re.search(r"V(\d+\.\d+\.\d+)", version)
        return (folder / "kernel.cubin").read_bytes(), b"", log, f"nvcc {release[1] if release else ''}".strip()


# -- logs ----------------------------------------------------------------------------------------------------------

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = {
    "registers": re.compile(r"Used (\d+) registers"),
    "barriers": re.compile(r"used (\d+) barriers"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


def resources_of(log: str) -> dict[str, dict[str, int]]:
    """What `ptxas -v` says of each kernel; `shared` is static shared memory, `spills` stores and loads, in bytes."""
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in log.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            current = found.setdefault(entry[1], {"registers": 0, "stack": 0, "spills": 0, "shared": 0, "barriers": 0})
        stack = _STACK.search(line)
        if stack:
            current["stack"], current["spills"] = int(stack[1]), int(stack[2]) + int(stack[3])
        for key, pattern in _USED.items():
            used = pattern.search(line)
            if used and current:
                current[key] = int(used[1])
    return found


_PLACE = re.compile(rf"{re.escape(SOURCE_NAME)}[(:](\d+)\)?:?\s*(?:\d+:)?\s*(?:catastrophic |fatal )?error:?\s*(.*)")


def explained(compiler: str, log: str, source: str) -> str:
    """The first error, with its line of the source and the last remark above it (the user's own statement)."""
    match = _PLACE.search(log)
    if match is None:
        lines = (
            [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines() or ["no reason given"]
        )
        return f"{compiler} refused the kernel: {lines[0].strip()}"
    number, said = int(match[1]), match[2].strip()
    lines = source.splitlines()
    text = lines[number - 1].strip() if number <= len(lines) else ""
    above = (line.strip() for line in reversed(lines[: number - 1]))
    remark = next((line.lstrip("/ ") for line in above if line.startswith("//")), "")
    origin = f"\n  in: {remark}" if remark else ""
    return f"{compiler} refused the kernel: {said}\n  --> {SOURCE_NAME}:{number}: {text}{origin}"
