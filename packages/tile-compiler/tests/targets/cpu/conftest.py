"""Runs launches of the CPU target: builds an object, loads it, calls the entry on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import LEVELS, CpuFeatures, host_features
from tile_compiler.targets.cpu.flatten import storage_bytes
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tile_runtime_cpu.elf import Image
from tilelang.ir.dtypes import DType

Array = np.ndarray[Any, Any]
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Scratch:
    """Places on-chip buffers one after the other; what a scratch planner does, without reuse."""

    def __init__(self) -> None:
        self.placed: list[tuple[Any, int]] = []
        self.size = 0

    def __call__(self, dtype: str, shape: Sequence[int]) -> Any:
        extents = tuple(tir.const(int(n), "int64") for n in shape)
        buffer = tir.decl_buffer(extents, dtype, f"scratch{len(self.placed)}", scope="shared", layout=None)
        self.placed.append((buffer, self.size))
        self.size += -(-int(np.prod(shape)) * storage_bytes(dtype) // 64) * 64
        return buffer


class Runner:
    """A built launch that can be called with arrays and scalars."""

    def __init__(self, launch: LoweredLaunch, features: CpuFeatures) -> None:
        self.built = build_object([launch], features)
        self.image = Image([(launch.symbol, self.built.object)])
        self.entry = _ENTRY(self.image.address(launch.symbol))
        self.scratch = np.zeros(launch.scratch_bytes + 64, np.uint8)

    def __call__(self, *arrays: Array, dims: Sequence[int] = (), blocks: int = 1, begin: int = 0) -> int:
        aligned = (self.scratch.ctypes.data + 63) // 64 * 64
        pointers = (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in arrays), aligned)
        values = (ctypes.c_int64 * max(1, len(dims)))(*dims)
        return int(self.entry(pointers, values, begin, blocks))


def run(launch: LoweredLaunch, features: CpuFeatures, *arrays: Array, **call: Any) -> int:
    return Runner(launch, features)(*arrays, **call)


def elementwise(
    function: Callable[..., Any], sources: Sequence[Array], dtypes: Sequence[str], result: str, features: CpuFeatures,
    *, vector: bool = True,
) -> Array:  # fmt: skip
    """`function` applied to each element of 1-D arrays by a generated loop; unpacked values in and out."""
    count = len(sources[0])
    extent = tir.const(count, "int64")
    inputs = [tir.decl_buffer((extent,), d, f"x{i}") for i, d in enumerate(dtypes)]
    output = tir.decl_buffer((extent,), result, "y")
    i = tir.Var("i", "int64")
    kind = tir.ForKind.VECTORIZED if vector else tir.ForKind.SERIAL
    store = tir.BufferStore(output, function(*(tir.BufferLoad(b, [i]) for b in inputs)), [i])
    body = tir.For(i, tir.const(0, "int64"), extent, kind, store)
    launch = LoweredLaunch("tile_main", (*inputs, output), (), (), 0, (), (), body)
    stored = [to_storage(a, DType(d)) for a, d in zip(sources, dtypes)]
    out = to_storage(np.zeros(count, DType(result).as_numpy()), DType(result))
    assert run(launch, features, *stored, out) == 0
    return from_storage(out, DType(result), count)


def to_storage(values: Array, dtype: DType) -> Array:
    """Unpacked values as global memory holds them."""
    from tilelang.interpreter import numerics

    if dtype.bits < 8:
        return numerics.pack(numerics.to_codes(values, dtype), dtype.bits)
    return np.ascontiguousarray(values)


def from_storage(stored: Array, dtype: DType, count: int) -> Array:
    from tilelang.interpreter import numerics

    if dtype.bits < 8:
        return numerics.from_codes(numerics.unpack(stored, dtype.bits)[:count], dtype)
    return stored


@pytest.fixture(name="run")
def _run() -> Callable[..., int]:
    return run


@pytest.fixture(name="Runner")
def _runner() -> type[Runner]:
    return Runner


@pytest.fixture(name="elementwise")
def _elementwise() -> Callable[..., Array]:
    return elementwise


@pytest.fixture(name="scratch")
def _scratch() -> Scratch:
    return Scratch()


def available_levels() -> list[CpuFeatures]:
    """The levels that this machine can run."""
    best = LEVELS.index(host_features())
    return list(LEVELS[: best + 1])


@pytest.fixture(params=available_levels(), ids=lambda f: "+".join([f.level, *f.extra]))
def features(request: pytest.FixtureRequest) -> CpuFeatures:
    return request.param


@pytest.fixture
def host() -> CpuFeatures:
    return host_features()
