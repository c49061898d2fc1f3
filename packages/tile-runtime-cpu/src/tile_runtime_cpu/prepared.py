"""Prepared calls without Python: jobs that are packed once, of which a call fills in addresses (prepared.ll).

A prepared function of Python (tile_runtime.launch_source) takes 3 us for a kernel of some operands, this one 0.3: as much as many
a kernel on few rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tile_runtime.binding import Bound
from tile_runtime.dtypes import DTYPES
from tile_runtime.errors import LoadError
from tile_runtime.expression import Expression, evaluate, references
from tile_runtime.manifest import Launch, Manifest, Param, Variant
from tile_runtime.native import is_usable, python_function, python_interface, torch_words

from .build import PREPARED
from .elf import Image
from .pool import JOB_HEADER, POOL

_IMPORTS = ("PyObject_Vectorcall", "PyErr_Clear", "PyLong_FromLongLong", "PyEval_SaveThread", "PyEval_RestoreThread",
            "Py_IncRef", "Py_DecRef", "_Py_NoneStruct")  # fmt: skip
_UNUSED = -1


class _NotPacked(Exception):
    """A call that Python has to look at each time."""


def quicken(
    manifest: Manifest,
    bound: Bound,
    python: Callable[..., Any],
    site: Callable[[Launch], tuple[int, int]],
    failed: Callable[[Launch, int], Exception],
    keep: object,
) -> Callable[..., Any]:
    """A function that runs calls like `bound`; `python`, the same in Python, where that cannot be done without it.

    `site(launch)` tells the addresses of a launch's function and of its estimate, `failed(launch, code)` what a result other than
    0 means; `keep` lives as long as the function.
    """
    image = _image()
    if image is None or (run := POOL.run_address()) == 0:
        return python
    try:
        packed = _Packed(manifest, bound)
        jobs = [packed.job(launch, *site(launch)) for launch in packed.launches]
    except _NotPacked:
        return python

    launches = packed.launches  # and no more of it, which has the operands of this call

    def fail(number: int, code: int) -> None:
        raise failed(launches[number], code)

    room = max((len(job) for _, job in jobs), default=8)
    words = [torch_words(), id(python), id(fail), POOL.address, run, room, len(packed.tensors)]
    text = struct.pack(f"={len(words)}Q2q", *words, packed.result, len(jobs))
    text += b"".join(struct.pack("=2q", *pair) for pair in packed.alignments())
    text += b"".join(struct.pack(f"={2 + len(at)}q", len(job), len(at), *at) + job for at, job in jobs)
    entries = [image.address(symbol) for symbol in ("tl_prepared_cpu_v1", "tl_launch_cpu_v1")]
    return python_function(entries[0], text, (image, python, fail, keep), entries[1])


class _Packed:
    """The launches of a call whose shapes and scalars are fixed."""

    def __init__(self, manifest: Manifest, bound: Bound) -> None:
        self.manifest, self._bound = manifest, bound
        if manifest.workspace or len(manifest.outputs) > 1 or any(p.kind == "pointer" for p in manifest.params):
            raise _NotPacked
        self.tensors = [p for p in manifest.params if p.kind == "tensor"]
        self._index = {p.name: i for i, p in enumerate(manifest.params)}
        self._places = {p.name: i for i, p in enumerate(self.tensors)}
        self._scalars = {
            p.name: int(bound.scalars[i])
            for i, p in enumerate(manifest.params)
            if p.kind == "scalar" and DTYPES[p.dtype].kind != "float"
        }
        self._addresses = {p.name: bound.pointers[self._index[p.name]] for p in self.tensors}
        if not all(self._value(check.expr) for check in manifest.checks):
            raise _NotPacked  # for Python to explain
        self._decisive, variant = self._variant()
        self.launches = [
            launch for launch in variant.launches if all(self._value(extent) > 0 for extent in launch.grid)
        ]

    @property
    def result(self) -> int:
        """The place of the argument that a call returns, or -1."""
        return self._places[self.manifest.outputs[0]] if self.manifest.outputs else -1

    def _variant(self) -> tuple[dict[str, int], Variant]:
        """The variant of the call, and what its addresses, and those of the variants before, are asked to be multiples of."""
        asked: dict[str, int] = {}
        for variant in self.manifest.variants:
            if variant.guard is None:
                return asked, variant
            for name, multiple in _multiples(variant.guard):
                asked[name] = max(asked.get(name, 1), multiple)
            if evaluate(variant.guard, self._bound.dims, self._scalars, self._addresses):
                return asked, variant
        raise _NotPacked

    def alignments(self) -> list[tuple[int, int]]:
        """For each tensor a mask and the bits of the address under it, the same for calls that this one stands for."""
        pairs = []
        for param in self.tensors:
            if param.access == "none":
                if param.name in self._decisive:
                    raise _NotPacked
                pairs.append((_UNUSED, 0))
                continue
            mask = max(param.align, self._decisive.get(param.name, 1)) - 1
            pairs.append((mask, self._addresses[param.name] & mask))
        return pairs

    def job(self, launch: Launch, function: int, estimate: int) -> tuple[list[int], bytes]:
        """The tensors whose addresses a launch takes, and its job (pool.ll) with none filled in."""
        pointers: list[int] = []
        values: list[bytes] = []
        for kind, *rest in launch.args:
            if kind == "param" and self.manifest.param(rest[0]).kind == "tensor":
                pointers.append(self._places[rest[0]])
            elif kind == "param":
                param = self.manifest.param(rest[0])
                values.append(_word(param, self._bound.scalars[self._index[param.name]]))
            elif kind == "dim":
                values.append(struct.pack("=q", self._bound.dims[rest[0]]))
            elif kind == "value" and "float" not in rest[0]:
                values.append(struct.pack("=Q" if rest[0] == "uint64" else "=q", self._value(rest[1])))
            else:
                raise _NotPacked
        x, y, z = (self._value(extent) for extent in launch.grid)
        header = JOB_HEADER.pack(function, estimate, x * y * z, self._value(launch.shared), len(pointers), 0)
        return pointers, header + bytes(8 * len(pointers)) + b"".join(values)

    def _value(self, expression: Expression) -> int:
        if references(expression, "address"):
            raise _NotPacked
        return evaluate(expression, self._bound.dims, self._scalars)


def _word(param: Param, value: Any) -> bytes:
    if DTYPES[param.dtype].kind == "float":
        return struct.pack("=d", float(value))
    return struct.pack("=Q" if param.dtype == "uint64" else "=q", int(value))


def _multiples(guard: Expression) -> Sequence[tuple[str, int]]:
    """What a guard asks addresses to be multiples of, powers of two. Raises _NotPacked if it asks anything else of one."""
    if isinstance(guard, int):
        return []
    operator, *operands = guard
    if operator == "address":
        raise _NotPacked
    if operator == "floormod" and not isinstance(operands[0], int) and operands[0][0] == "address":
        multiple = operands[1]
        if not isinstance(multiple, int) or multiple <= 0 or multiple & (multiple - 1):
            raise _NotPacked
        return [(operands[0][1], multiple)]
    if operator in ("dim", "param"):
        return []
    return [found for operand in operands for found in _multiples(operand)]


@cache
def _image() -> Image | None:
    """The code; None on a machine where it cannot be had."""
    if not is_usable():
        return None
    data, _ = PREPARED.object()
    if data is None:
        return None
    try:
        return Image([("prepared.o", data)], python_interface(_IMPORTS))
    except LoadError:
        return None
