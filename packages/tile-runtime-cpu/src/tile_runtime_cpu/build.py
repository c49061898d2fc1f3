"""Native code of this package, made from text: pool.ll to an object.

A wheel carries the object (`python -m tile_runtime_cpu.build` writes it into the package before the wheel is made). A
source checkout has none: then it comes from the kernel cache, or TVM's LLVM compiles it once into there. This is the
only module here that may load TVM, and only for that.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import tempfile
from pathlib import Path

from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache
from tile_runtime.errors import CacheFolderError
from tile_runtime.manifest import Manifest

_LOG = logging.getLogger("tile_runtime_cpu.build")
_FOLDER = Path(__file__).parent
_OBJECT = "pool.o"


def pool_text() -> str:
    """The LLVM IR of the pool."""
    return (_FOLDER / "pool.ll").read_text(encoding="utf-8")


def pool_key() -> str:
    """Level-2 cache key of the pool's object: changes with its text."""
    return f"tile-runtime-cpu pool {hashlib.sha256(pool_text().encode()).hexdigest()}"


def packaged_file() -> Path:
    """Where a wheel carries the object. The text's hash in its name keeps an old object from passing for a new one."""
    return _FOLDER / f"pool-x86_64-{hashlib.sha256(pool_text().encode()).hexdigest()[:16]}.o"


def find_pool(cache: Cache) -> tuple[bytes | None, str]:
    """The object if it is packaged or cached, and where it was found; else None and what can be done. Never raises."""
    packaged = packaged_file()
    if packaged.is_file():
        return packaged.read_bytes(), "packaged"
    try:
        found = cache.get(pool_key())
    except CacheFolderError as error:
        _LOG.warning("%s", error)
        found = None
    if found is not None:
        return found.read(_OBJECT), "cache"
    if importlib.util.find_spec("tvm") is None:
        return None, "this installation carries no compiled pool and TVM is not installed to compile it"
    return None, "TVM will compile it at the first launch"


def pool_object(cache: Cache | None = None) -> tuple[bytes | None, str]:
    """As `find_pool`, but compiles the object where TVM is installed, and stores it. Never raises."""
    cache = cache or Cache()
    data, origin = find_pool(cache)
    if data is not None or importlib.util.find_spec("tvm") is None:
        return data, origin
    try:
        data = compile_llvm(pool_text())
        cache.put(pool_key(), _as_artifact(data))
    except CacheFolderError:
        return data, "compiled by TVM, not cached"
    except Exception as error:  # a broken TVM must not stop kernels that need none
        return None, f"TVM could not compile pool.ll: {type(error).__name__}: {error}"
    return data, "compiled by TVM"


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


def _as_artifact(data: bytes) -> Artifact:
    manifest = Manifest.from_json(
        {
            "format": 1,
            "name": "tile_runtime_cpu.pool",
            "key": pool_key(),
            "target": {"kind": "cpu", "arch": "x86-64"},
            "binaries": [{"file": _OBJECT, "kind": "elf"}],
        }
    )
    return Artifact(manifest, {_OBJECT: data})


if __name__ == "__main__":
    for stale in _FOLDER.glob("pool-*.o"):
        stale.unlink()
    packaged_file().write_bytes(compile_llvm(pool_text()))
    print(packaged_file())
