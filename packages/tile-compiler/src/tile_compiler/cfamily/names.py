"""C++ identifiers for the user's names."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept
const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq
""".split()
# What kernels refer to beside their own variables: hiding one of these would change what a line means.
_TAKEN = """
tl threadIdx blockIdx blockDim gridDim warpSize min max abs isnan isinf isfinite lane floor_divide floor_remainder shift_left
shift_right bit_cast int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
half float2 float4 int2 int4 uint2 uint4 dim3 NULL INFINITY NAN assert printf main
""".split()


class Names:
    """Gives out identifiers. A name is taken until its scope ends; a scope inside never hides a name outside."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used = {*_KEYWORDS, *_TAKEN, *taken}
        self._scopes: list[list[str]] = [[]]

    def new(self, wanted: str) -> str:
        """`wanted` made an identifier, with a number behind it where it is taken."""
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "value"
        base = re.sub(r"__+", "_", base)  # C++ reserves double underscores
        if base[0].isdigit():
            base = f"v{base}"
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        self._scopes[-1].append(name)
        return name

    def enter(self) -> None:
        """Begin a block."""
        self._scopes.append([])

    def leave(self) -> None:
        """End a block: its names are free again."""
        self._used.difference_update(self._scopes.pop())
