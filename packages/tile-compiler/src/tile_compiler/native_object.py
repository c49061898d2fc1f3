"""LLVM text to an x86-64 object, by the LLVM of TVM's wheel."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm  # noqa: F401  (registers the loader)
import tvm_ffi


def object_of(text: str) -> bytes | None:
    """The relocatable object; None where this TVM has no LLVM."""
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.ll", allow_missing=True)
    if load is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tile-native-") as name:
        source, target = Path(name) / "entry.ll", Path(name) / "entry.o"
        source.write_text(text, encoding="utf-8")
        load(str(source), "ll").write_to_file(str(target), "o")
        return target.read_bytes()
