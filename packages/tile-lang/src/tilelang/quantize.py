"""Numbers of a few bits, packed into bytes: decoding them with the kernel's own integer operations.

A packed element `pos` of `nbit` bits lies in bits `pos * nbit` and up of its storage element, low bits first. Each
function below makes a converter `convert(nbit, val, pos, dtype)` for storage of one type, to be called in a kernel:

    B_local[i, j] = packed_to_unsigned("uint", 8)(4, packed[i, j // 2], j % 2, dtype="float16")

| converter | the four bits 0b1011 become |
| --- | --- |
| `packed_to_unsigned` | 11 |
| `packed_to_signed` | -5 (two's complement) |
| `packed_to_offset` | 4 (11 - 7: unsigned, minus the largest positive number) |
| `packed_to_e2m1` | -1.5 (sign 1, exponent 01, mantissa 1: the float4 of OCP MX) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.errors import DtypeError, InvalidArgument
from tilelang.frontend.values import Value, as_value, cast
from tilelang.ir.dtypes import dtype_of

Converter = Callable[..., Any]


def _field(storage: str, nbit: int, val: Any, pos: Any) -> Value:
    """Bits `pos * nbit` and up of `val`, as a non-negative int32."""
    value = as_value(val)
    if value.dtype != storage:
        raise DtypeError(
            "a packed element has another storage type than its converter",
            found=f"{value.dtype}",
            expected=storage,
            repair=f'make the converter for "{value.dtype.kind}", {value.dtype.bits}',
        )
    if not 1 <= nbit < value.dtype.bits or value.dtype.bits > 32:
        raise InvalidArgument(
            "a packed element cannot have this width",
            found=f"{nbit} bits in {value.dtype}",
            expected="at least 1 bit, less than its storage, which has at most 32",
            repair="pass the buffer that holds the packed bytes",
        )
    return (cast(value, "int32") >> (pos * nbit)) & ((1 << nbit) - 1)


def _converter(name: str, meaning: Callable[[Value, int], Any], doc: str) -> Callable[..., Converter]:
    def make(storage_type: str = "uint", storage_nbit: int = 8) -> Converter:
        storage = str(dtype_of(f"{storage_type}{storage_nbit}"))

        def convert(nbit: int, val: Any, pos: Any, dtype: Any) -> Any:
            return cast(meaning(_field(storage, nbit, val, pos), nbit), dtype)

        return convert

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


def _e2m1(code: Value, nbit: int) -> Value:
    from tilelang.language.math import reinterpret

    if nbit != 4:
        raise InvalidArgument("float4 e2m1 has 4 bits", found=f"nbit={nbit}", expected="4", repair="nbit=4")
    # Sign to bit 15, exponent and mantissa to bits 9..11: a float16 whose exponent is too small by 14, which the
    # product with 2**14 mends, also for the subnormal 0.5. It is exact.
    bits = ((code & 8) << 12) | ((code & 7) << 9)
    return reinterpret(cast(bits, "uint16"), "float16") * 16384.0


packed_to_unsigned = _converter("packed_to_unsigned", lambda x, n: x, "Bits as an unsigned number.")
packed_to_signed = _converter(
    "packed_to_signed", lambda x, n: (x ^ (1 << (n - 1))) - (1 << (n - 1)), "Bits as a number in two's complement."
)
packed_to_offset = _converter(
    "packed_to_offset", lambda x, n: x - ((1 << (n - 1)) - 1), "Bits as an unsigned number minus 2**(nbit - 1) - 1."
)
packed_to_e2m1 = _converter("packed_to_e2m1", _e2m1, "Four bits as a float4 e2m1; exact in float16 and wider.")

# The names of the paper's listing and of upstream's helpers.
_tir_packed_to_unsigned_convert = packed_to_unsigned
_tir_packed_to_signed_convert = packed_to_offset
_tir_packed_int_to_int_convert = packed_to_signed
