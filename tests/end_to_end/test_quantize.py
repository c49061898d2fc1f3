"""`tilelang.quantize`: every code of every width decodes to the same number as in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dequant_gemm_fp4 import E2M1

import tilelang
import tilelang.language as T
from tilelang import quantize

MEANINGS: dict[str, Callable[[Any, int], Any]] = {
    "packed_to_unsigned": lambda code, bits: code,
    "packed_to_signed": lambda code, bits: np.where(code >= 1 << (bits - 1), code - (1 << bits), code),
    "packed_to_offset": lambda code, bits: code - ((1 << (bits - 1)) - 1),
    "packed_to_e2m1": lambda code, bits: E2M1[code],
}
FORMATS = [
    *[(name, bits, storage) for name in list(MEANINGS)[:3] for bits in (1, 2, 4) for storage in ("uint8", "int8")],
    ("packed_to_unsigned", 4, "int32"),
    ("packed_to_signed", 4, "uint32"),
    ("packed_to_signed", 3, "int16"),
    ("packed_to_e2m1", 4, "uint8"),
    ("packed_to_e2m1", 4, "int8"),
]
CASES = [
    (*format, dtype)
    for format in FORMATS
    for dtype in ("float16", "float32", "int8")
    if (format[0], dtype) != ("packed_to_e2m1", "int8")
]


def decode(name: str, bits: int, storage: str, count: int, dtype: str) -> Any:
    """A kernel that decodes `count` storage elements: (count,) to (count, per)."""
    width = int(storage.lstrip("uint"))
    per = width // bits
    convert = getattr(quantize, name)(storage[: -len(str(width))], width)

    @T.prim_func
    def main(packed: T.Tensor((count,), storage), decoded: T.Tensor((count, per), dtype)):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(count, per):
                decoded[i, j] = convert(bits, packed[i], j, dtype=dtype)

    return main


@pytest.mark.parametrize(("name", "bits", "storage", "dtype"), CASES)
def test_codes_decode_as_in_numpy(name: str, bits: int, storage: str, dtype: str, execution: str) -> None:
    limits = np.iinfo(storage)
    some = np.random.default_rng(0).integers(limits.min, limits.max, 64, storage, endpoint=True)
    packed = np.concatenate([some, np.array([limits.min, limits.max, 0, 1], storage)])
    if limits.bits == 8:
        packed = np.arange(256, dtype=np.uint8).view(storage)
    func = decode(name, bits, storage, len(packed), dtype)
    actual = tilelang.compile(func, out_idx=[1], target="cpu", execution=execution)(packed)
    shifts = np.arange(limits.bits // bits) * bits
    codes = (packed.astype(np.int64)[:, None] >> shifts) & ((1 << bits) - 1)
    np.testing.assert_array_equal(actual, MEANINGS[name](codes, bits).astype(dtype))


def test_wrong_storage_is_an_error() -> None:
    with pytest.raises(TypeError, match="another storage type"):
        decode_mismatched()


def decode_mismatched() -> Any:
    """A kernel whose converter is made for another type than it gets."""
    convert = quantize.packed_to_unsigned("int", 8)

    @T.prim_func
    def main(packed: T.Tensor((4,), "uint8"), decoded: T.Tensor((4,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                decoded[i] = convert(4, packed[i], 0, dtype="float16")

    return main


@pytest.mark.parametrize(
    ("name", "bits"), [("packed_to_unsigned", 8), ("packed_to_unsigned", 0), ("packed_to_e2m1", 3)]
)
def test_impossible_width_is_an_error(name: str, bits: int) -> None:
    with pytest.raises(ValueError, match=r"width|4 bits"):
        decode_width(name, bits)


def decode_width(name: str, bits: int) -> Any:
    """A kernel that decodes fields of `bits` bits from bytes."""
    convert = getattr(quantize, name)("uint", 8)

    @T.prim_func
    def main(packed: T.Tensor((4,), "uint8"), decoded: T.Tensor((4,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                decoded[i] = convert(bits, packed[i], 0, dtype="float16")

    return main


def test_the_papers_name_is_the_same_converter() -> None:
    assert quantize._tir_packed_to_unsigned_convert is quantize.packed_to_unsigned
