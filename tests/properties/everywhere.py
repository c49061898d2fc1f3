"""Run a generated function in the interpreter and on the CPU, and compare both with numpy.

The reference shares nothing with the interpreter: conversions and packing are written here once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tilelang
from tilelang.testing import assert_close

EXECUTIONS = ("interpret", "device")
Array = np.ndarray[Any, Any]

BITS = {"int1": 1, "uint1": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
_LARGEST = {
    n: float(ml_dtypes.finfo(n).max) for n in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The type of unpacked elements: int8 and uint8 for integers under a byte, float32 for float4."""
    if dtype in BITS:
        return np.dtype("float32" if dtype.startswith("float") else "uint8" if dtype.startswith("u") else "int8")
    return np.dtype(
        getattr(ml_dtypes, dtype, dtype) if dtype[:3] in ("bfl", "flo") and not hasattr(np, dtype) else dtype
    )


def is_float(dtype: str) -> bool:
    return "float" in dtype


def limits(dtype: str) -> tuple[int, int]:
    bits = BITS.get(dtype) or int(dtype.lstrip("uint"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def cast(values: Array, source: str, target: str) -> Array:
    """The conversion of docs/internals/tile-ir.md, between types that numpy converts exactly enough."""
    if source == target:
        return values
    if target == "bool":
        return values.astype(np.float64 if is_float(source) else values.dtype) != 0
    if not is_float(target):
        low, high = limits(target)
        if is_float(source):
            exact = np.trunc(values.astype(np.float64))
            wanted = [0 if np.isnan(x) else low if x < low else high if x > high else int(x) for x in exact.flat]
        else:
            wanted = [(int(x) - low) % (high - low + 1) + low for x in values.flat]
        return np.array(wanted, numpy_type(target)).reshape(values.shape)
    if target in ("float32", "float64", "float16"):
        return values.astype(np.float32 if source in ("bfloat16", *_LARGEST) else values.dtype).astype(target)
    single = values.astype(np.float32)
    if target == "float4_e2m1fn":
        # Ties go to the even code; none of the values between the largest and 7 is one.
        distance = np.abs(np.abs(single)[..., None] - _E2M1)
        nearest = distance == distance.min(-1, keepdims=True)
        codes = np.array([[c for c in range(8) if row[c]] for row in nearest.reshape(-1, 8)], dtype=object)
        picked = [min(c, key=lambda n: n % 2) for c in codes]
        return np.copysign(_E2M1[picked].reshape(single.shape), single).astype(np.float32)
    if target in _LARGEST:
        single = np.clip(single, -_LARGEST[target], _LARGEST[target])
    return single.astype(numpy_type(target))


def to_storage(values: Array, dtype: str) -> Array:
    """An array as a call passes it: types under a byte packed along the last dimension, low bits first."""
    if dtype not in BITS:
        return values
    bits = BITS[dtype]
    if dtype.startswith("float"):
        codes = np.searchsorted(_E2M1, np.abs(values)) + 8 * np.signbit(values)
    else:
        codes = values.astype(np.int64) & ((1 << bits) - 1)
    per = 8 // bits
    grouped = codes.astype(np.uint8).reshape(*values.shape[:-1], -1, per)
    return np.bitwise_or.reduce(grouped << (np.arange(per, dtype=np.uint8) * np.uint8(bits)), axis=-1).astype(np.uint8)


def from_storage(stored: Array, dtype: str) -> Array:
    """The inverse of `to_storage`."""
    if dtype not in BITS:
        return stored
    bits = BITS[dtype]
    codes = (stored[..., None] >> (np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits))) & np.uint8((1 << bits) - 1)
    codes = codes.reshape(*stored.shape[:-1], -1).astype(np.int64)
    if dtype.startswith("float"):
        return np.where(codes >= 8, -_E2M1[codes & 7], _E2M1[codes & 7]).astype(np.float32)
    if dtype.startswith("int"):
        codes = codes - ((codes >> (bits - 1)) << bits)
    return codes.astype(numpy_type(dtype))


def run(func: Any, execution: str, arguments: Sequence[Any]) -> list[Any]:
    """Copies of the arguments after the call."""
    kernel = tilelang.compile(func, target="cpu", execution=execution)
    work = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    kernel(*work)
    return work


def agree(
    func: Any, arguments: Sequence[Any], want: Sequence[Array | None], rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Interpreter and CPU leave `want` in the arguments; an entry that is None was not to be changed."""
    for execution in EXECUTIONS:
        got = run(func, execution, arguments)
        for index, (have, expected) in enumerate(zip(got, want)):
            if not isinstance(have, np.ndarray):
                continue
            try:
                if expected is None:
                    assert have.tobytes() == arguments[index].tobytes(), "an input was changed"
                elif rtol == atol == 0 and have.dtype.kind in "iub":
                    np.testing.assert_array_equal(have, expected)
                else:
                    assert_close(have, expected, rtol=rtol, atol=atol)
            except AssertionError as error:
                raise AssertionError(f"{execution}, argument {index}: {error}\n{func.script()}") from None


def random_values(shape: Sequence[int], dtype: str, seed: int, small: bool = False) -> Array:
    """Never zero. Integers of the whole range, or up to 7 when `small`; floats of magnitudes from 0.25 to 8."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "float4_e2m1fn":
        return (_E2M1[rng.integers(1, 8, shape)] * rng.choice([-1, 1], shape)).astype(np.float32)
    if is_float(dtype):
        values = np.exp2(rng.uniform(-2, 3, shape)) * rng.choice([-1, 1], shape)
        return cast(values.astype(np.float32), "float32", dtype)
    low, high = limits(dtype)
    if small:
        low, high = max(low, -7), min(high, 7)
    values = rng.integers(low, high, shape, dtype=np.int64 if dtype != "uint64" else np.uint64, endpoint=True)
    return np.where(values == 0, high, values).astype(numpy_type(dtype))
