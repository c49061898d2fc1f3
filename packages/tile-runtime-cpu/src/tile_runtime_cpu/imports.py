"""The closed list of C library names that a kernel object may import, and where they are.

LLVM turns loops into memcpy and memset, and a few scalar functions have no instruction. Nothing that does input or
output, allocates or starts anything is on the list. Why imports at all: docs/decisions/0003-libm-imports.md.
"""

from __future__ import annotations

import ctypes
import functools

_MEMORY = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
_REAL = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "exp10", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "ldexp", "lgamma",
    "log", "log10", "log1p", "log2", "nearbyint", "pow", "remainder", "rint", "round", "roundeven", "sin", "sinh",
    "sqrt", "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip

#: Everything a kernel object may import: five memory functions and libm's functions of one double or float.
IMPORTS = frozenset((*_MEMORY, *_REAL, *(name + "f" for name in _REAL)))


@functools.lru_cache(maxsize=1)
def _libraries() -> list[ctypes.CDLL]:
    found = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libm.so"):
        try:
            found.append(ctypes.CDLL(name))
            break
        except OSError:  # musl keeps the functions in libc
            continue
    return found


def library_address(name: str) -> int | None:
    """Address of any function of the C library; None if it has none of that name."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
    return None


def import_address(name: str) -> int | None:
    """Address of a name on the list; None for any other."""
    return library_address(name) if name in IMPORTS else None
