"""The host's C++ compiler: finding it, building the runtime once per machine, building kernels.

Both results are kept in the kernel cache under a hash of everything that made them. Kernels are compiled with
-fsanitize=thread for the calls that it puts before each load and store; the runtime defines those calls, and the
sanitizer's own library is never linked.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache
from tile_runtime.errors import CacheFolderError, TileRuntimeError
from tile_runtime.manifest import Manifest

from .. import cpuid

_LOG = logging.getLogger("tile_runtime_cpu.emulator")
_FOLDER = Path(__file__).parent
INCLUDE = _FOLDER / "include"
RUNTIME = _FOLDER / "runtime"
_MARCH = "x86-64-v3"

#: For both. Kernels read memory as other types than it was written as, as device code does. The processor's features one
#: by one, as zig has names of its own for the levels.
_COMMON = [
    "-std=c++17",
    "-fPIC",
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mbmi2",
    "-fno-strict-aliasing",
    "-fno-sanitize=undefined",
]
_RUNTIME_FLAGS = ["-O2"]
#: For zig, whose C++ library is not built: nothing throws, and what would have thrown stops (runtime/alone.cpp).
_ALONE = ["-DTL_EMU_ALONE", "-fno-exceptions", "-D_LIBCPP_VERBOSE_ABORT(...)=__builtin_trap()"]
#: -O1: at -O2 a kernel took a third longer to compile and ran no faster (256^3 GEMM; its time is the runtime's).
#: -g1 is line tables, for the reports; a tail call would hide the line that made it.
_KERNEL_FLAGS = ["-O1", "-g1", "-fsanitize=thread", "-fno-optimize-sibling-calls", "-w"]
#: Without the calls at entry and exit of functions, which we have no use for; with those before a read that a write to
#: the same place follows, which clang leaves out as no race can depend on it: uninitialized memory can.
_INSTRUMENTATION = {
    # A vector stays one access: as four stores of its elements it would lose its alignment and count as four.
    "gcc": ["--param", "tsan-instrument-func-entry-exit=0", "-fno-tree-sra"],
    "clang": ["-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-read-before-write=1"],
}
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\("
)
_SOURCE_NAME = "kernel.cu"
_REPAIR = (  # our own text compiles: what does not is the user's
    "\n  try:      guard what only a GPU understands of T.import_source with #ifndef TL_HOST, and put a version for the "
    "host behind #else"
)


class NoCompilerError(TileRuntimeError, RuntimeError):
    """The emulator cannot run here: no C++ compiler, or not the processor it is written for."""

    code = "TLR040"


class CompileError(TileRuntimeError, RuntimeError):
    """The host's compiler refused the kernel."""

    code = "TLR041"


@dataclass(frozen=True)
class HostCompiler:
    """A command that compiles C++, its family (gcc or clang), and its version, which is part of cache keys."""

    command: tuple[str, ...]
    family: str
    version: str

    @property
    def is_zig(self) -> bool:
        return self.command[-1] == "c++" and any("zig" in part for part in self.command[:-1])

    @property
    def linker(self) -> tuple[str, ...]:
        """The command that links. zig's for C++ would build its C++ library first, and without -O2 its sanitizer's."""
        return (*self.command[:-1], "cc", "-O2", "-fno-sanitize=undefined") if self.is_zig else self.command


def host_compiler() -> HostCompiler:
    """CXX, else g++, clang++, or the `ziglang` package. Raises NoCompilerError if there is none."""
    missing = cpuid.missing(_MARCH, ())
    if missing:
        raise NoCompilerError(f"the emulator needs an {_MARCH} processor; this one lacks {', '.join(missing)}")
    return _find_compiler(os.environ.get("CXX", ""))


@functools.lru_cache(maxsize=4)
def _find_compiler(chosen: str) -> HostCompiler:
    candidates = [shlex.split(chosen)] if chosen else [["g++"], ["clang++"]]
    if not chosen and importlib.util.find_spec("ziglang") is not None:
        candidates.append([sys.executable, "-m", "ziglang", "c++"])
    for command in candidates:
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run([*command, "--version"], capture_output=True, text=True)
        if asked.returncode == 0:
            version = asked.stdout.splitlines()[0] if asked.stdout else ""
            return HostCompiler(tuple(command), "clang" if "clang" in asked.stdout else "gcc", version)
    wanted = f"the compiler that CXX names ({chosen!r})" if chosen else "g++, clang++ or the Python package ziglang"
    raise NoCompilerError(f"the emulator compiles kernels for the host: install {wanted}")


@functools.lru_cache(maxsize=1)
def _folder() -> Path:
    """A folder of this process for shared objects; only it can write there."""
    folder = Path(tempfile.mkdtemp(prefix="tilelang-emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _fresh_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_folder()))


def _digest(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _tree(folder: Path) -> list[str | bytes]:
    """Names and contents of the text files of a folder: what a header's content adds to a key."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".hpp", ".cuh", ".cpp") and p.is_file())
    return [part for p in files for part in (str(p.relative_to(folder)), p.read_bytes())]


def _cached(key: str, name: str) -> bytes | None:
    try:
        found = Cache().get(key)
    except CacheFolderError as error:
        _LOG.warning("%s", error)
        return None
    return None if found is None else found.read(name)


def _store(key: str, name: str, data: bytes) -> None:
    fields = {"format": 1, "name": "tile_runtime_cpu.emulator", "key": key, "target": {"kind": "cpu", "arch": _MARCH}}
    manifest = Manifest.from_json({**fields, "binaries": [{"file": name, "kind": "elf"}]})
    try:
        Cache().put(key, Artifact(manifest, {name: data}))
    except CacheFolderError as error:
        _LOG.warning("%s", error)


def _run(command: Sequence[str], folder: Path, what: str, repair: str = "") -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise CompileError(f"the host compiler refused {what}:\n{done.stderr.strip()[-6000:]}{repair}")


@functools.lru_cache(maxsize=2)
def runtime_library(compiler: HostCompiler) -> Path:
    """The runtime as a shared object."""
    flags = [*_COMMON, *_RUNTIME_FLAGS, *(_ALONE if compiler.is_zig else [])]
    key = f"emulator runtime {_digest([*compiler.command, compiler.version, *flags, *_tree(_FOLDER)])}"
    # A name of its own: the loader takes a library of equal name for the same one, also where CXX has changed.
    name = f"libtl_emulator-{key[-12:]}.so"
    path = _fresh_folder() / name
    data = _cached(key, name)
    if data is not None:
        path.write_bytes(data)
        return path
    what = "the emulator's runtime"
    _run([*compiler.command, *flags, "-c", str(RUNTIME / "runtime.cpp"), "-o", "runtime.o"], path.parent, what)
    _run([*compiler.linker, "-shared", f"-Wl,-soname,{name}", "runtime.o", "-o", str(path)], path.parent, what)
    _store(key, name, path.read_bytes())
    return path


def kernel_names(source: str) -> list[str]:
    """The __global__ functions of a text."""
    return _KERNEL.findall(source)


def build_kernel(source: str, include_dirs: Sequence[str | os.PathLike[str]], arch: str = "") -> Path:
    """The shared object of a device text, with an entry for each of its kernels.

    `arch`: the name of a gfx architecture, defined as clang does for the device (`__gfx942__`).
    """
    compiler = host_compiler()
    runtime = runtime_library(compiler)
    names = kernel_names(source)
    if not names:
        raise CompileError("the text has no __global__ function")
    entries = "".join(f"TL_EMU_ENTRY({name})\n" for name in names)
    unit = f'#include "{_SOURCE_NAME}"\n#include "tl/entry.h"\n{entries}'
    flags = [*_COMMON, *_KERNEL_FLAGS, *_INSTRUMENTATION[compiler.family]]
    flags += [f"-D__{arch}__"] if arch.startswith("gfx") else []
    trees = [part for folder in (_FOLDER, *map(Path, include_dirs)) for part in _tree(folder)]
    key = f"emulator kernel {_digest([*compiler.command, compiler.version, *flags, source, unit, *trees])}"
    folder = _fresh_folder()
    path = folder / "kernel.so"
    (folder / _SOURCE_NAME).write_text(source, encoding="utf-8")
    data = _cached(key, path.name)
    if data is not None:
        path.write_bytes(data)
        return path
    (folder / "unit.cpp").write_text(unit, encoding="utf-8")
    # The emulator's folder comes first: its tl_cuda.cuh stands in for the device's.
    includes = [f"-I{folder}" for folder in (".", INCLUDE, *include_dirs)]
    # A prefix map keeps the temporary folder's name out of the object, so that equal kernels give equal objects.
    where = f"-ffile-prefix-map={folder}=."
    _run([*compiler.command, *flags, where, *includes, "-c", "unit.cpp", "-o", "unit.o"], folder, "the kernel", _REPAIR)
    link = [*compiler.linker, "-shared", "unit.o", str(runtime), "-o", str(path), "-nodefaultlibs", "-lm", "-lc"]
    _run(link, folder, "to link the kernel")
    _store(key, path.name, path.read_bytes())
    return path


def source_lines(library: Path, address: int) -> list[int]:
    """The lines of the device text that an address in a kernel's shared object belongs to, through all inlined calls,
    innermost first; none where the tool or its data lack."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line") or shutil.which("llvm-symbolizer")
    if tool is None:
        return []
    asked = subprocess.run([tool, "-i", "-e", str(library), hex(address)], capture_output=True, text=True)
    return [int(line) for line in re.findall(rf"{re.escape(_SOURCE_NAME)}:(\d+)", asked.stdout)]
