"""`T.print` on the CPU: kernels call `tl_print(site, data, count)`, which formats by the table in the manifest.

Each launch has a list of {"site", "msg", "dtype", "shape", "block"}; see docs/internals/runtime.md. The call comes
from any thread; ctypes takes the interpreter's lock for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tile_runtime.dtypes import numpy_dtype
from tile_runtime.manifest import Launch

_MAX_ELEMENTS = 1 << 24
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


def site_table(launches: Iterable[Launch]) -> dict[int, Mapping[str, Any]]:
    """Sites of the launches that share one binary; an entry without a "site" has its running number."""
    table: dict[int, Mapping[str, Any]] = {}
    for number, entry in enumerate(e for launch in launches for e in launch.prints):
        site = entry.get("site", number)
        table[site if isinstance(site, int) else number] = entry
    return table


def make_callback(table: Mapping[int, Mapping[str, Any]]) -> Any:
    """The C function `tl_print` for this table. It must be kept alive as long as code can call it."""

    def tl_print(site: int, data: int | None, count: int) -> None:
        print(format_site(table.get(site, {}), site, data or 0, count), flush=True)

    return CALLBACK(tl_print)


def format_site(entry: Mapping[str, Any], site: int, address: int, count: int) -> str:
    """One printed text: `msg='x' BlockIdx=(0, 0, 0) dtype=float32 shape=(2, 2): [[…]]`. Never raises."""
    parts = [f"msg={entry['msg']!r}"] if entry.get("msg") else []
    if entry.get("block"):
        block = tuple(int(v) for v in np.frombuffer(ctypes.string_at(address, 24), np.int64))
        parts.append(f"BlockIdx={block}")
        address += 24
    name = str(entry.get("dtype", "?"))
    dtype = numpy_dtype(name) if name != "?" else None
    if dtype is None or not 0 <= count <= _MAX_ELEMENTS:
        return " ".join([*parts, f"(print site {site}: {count} elements of dtype {name}, which cannot be shown)"])
    values = np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype)
    shape = entry.get("shape")
    if (
        isinstance(shape, (list, tuple))
        and all(isinstance(s, int) for s in shape)
        and int(np.prod(shape, dtype=np.int64)) == count
    ):
        values = values.reshape(tuple(shape))
    if values.size == 1:
        return " ".join([*parts, f"dtype={name}: {values.reshape(()).item()}"])
    return " ".join([*parts, f"dtype={name} shape={tuple(values.shape)}:\n{values}"])
