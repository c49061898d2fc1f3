"""Machine code of a runtime package, made from LLVM text beside its modules: `<name>.ll` to an object.

A wheel carries the object (`python -m tile_runtime.shipped_code <package>` writes it beside the text before the wheel is made).
A source checkout has none: then it comes from the kernel cache, or TVM's LLVM compiles it once into there. This is the only
module of the runtimes that may load TVM, and only for that.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import sys
import tempfile
from pathlib import Path

from .artifact import Artifact
from .cache import Cache
from .errors import CacheFolderError
from .manifest import Manifest

_LOG = logging.getLogger("tile_runtime.shipped_code")


class ShippedCode:
    """The object of `<folder>/<name>.ll`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._file = f"{name}.o"

    def text(self) -> str:
        """The LLVM text."""
        return (self.folder / f"{self.name}.ll").read_text(encoding="utf-8")

    def key(self) -> str:
        """Level-2 cache key of the object: changes with the text."""
        return f"{self.folder.name} {self.name} {self._digest()}"

    def packaged_file(self) -> Path:
        """Where a wheel carries the object. The text's hash in its name keeps an old object from passing for a new one."""
        return self.folder / f"{self.name}-x86_64-{self._digest()[:16]}.o"

    def find(self, cache: Cache) -> tuple[bytes | None, str]:
        """The object if it is packaged or cached, and where it was found; else None and what can be done. Never raises."""
        packaged = self.packaged_file()
        if packaged.is_file():
            return packaged.read_bytes(), "packaged"
        try:
            found = cache.get(self.key())
        except CacheFolderError as error:
            _LOG.warning("%s", error)
            found = None
        if found is not None:
            return found.read(self._file), "cache"
        if not _tvm_is_installed():
            return None, f"this installation carries no compiled {self.name} and TVM is not installed to compile it"
        return None, "TVM will compile it at the first launch"

    def object(self, cache: Cache | None = None) -> tuple[bytes | None, str]:
        """As `find`, but compiles the object where TVM is installed, and stores it. Never raises."""
        cache = cache or Cache()
        data, origin = self.find(cache)
        if data is not None or not _tvm_is_installed():
            return data, origin
        try:
            data = compile_llvm(self.text())
            cache.put(self.key(), self._as_artifact(data))
        except CacheFolderError:
            return data, "compiled by TVM, not cached"
        except Exception as error:  # a broken TVM must not stop kernels that need none
            return None, f"TVM could not compile {self.name}.ll: {type(error).__name__}: {error}"
        return data, "compiled by TVM"

    def write(self) -> Path:
        """Compiles the object to where a wheel carries it, in place of older ones."""
        for stale in self.folder.glob(f"{self.name}-x86_64-*.o"):
            stale.unlink()
        self.packaged_file().write_bytes(compile_llvm(self.text()))
        return self.packaged_file()

    def _digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()

    def _as_artifact(self, data: bytes) -> Artifact:
        manifest = Manifest.from_json(
            {
                "format": 1,
                "name": f"{self.folder.name}.{self.name}",
                "key": self.key(),
                "target": {"kind": "cpu", "arch": "x86-64"},
                "binaries": [{"file": self._file, "kind": "elf"}],
            }
        )
        return Artifact(manifest, {self._file: data})


def _tvm_is_installed() -> bool:
    return importlib.util.find_spec("tvm") is not None


def compile_llvm(text: str) -> bytes:
    """x86-64 object of LLVM IR text, compiled by TVM's LLVM. Raises what TVM raises; RuntimeError if it has no LLVM."""
    # By name, so that the launch path has no import of TVM: everything else here works without it.
    tvm_ffi = importlib.import_module("tvm_ffi")
    importlib.import_module("tvm")  # registers the loader
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.ll", allow_missing=True)
    if load is None:
        raise RuntimeError("this TVM was built without LLVM")
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "code.ll"), os.path.join(folder, "code.o")
        Path(source).write_text(text, encoding="utf-8")
        load(source, "ll").write_to_file(target, "o")
        return Path(target).read_bytes()


if __name__ == "__main__":
    for package in sys.argv[1:]:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{package} is not installed")
        for source in sorted(Path(spec.origin).parent.glob("*.ll")):
            print(ShippedCode(source.parent, source.stem).write())
