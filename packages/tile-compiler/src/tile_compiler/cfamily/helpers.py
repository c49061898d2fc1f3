"""Small functions that a source defines for itself when it uses them. `TL_DEVICE` comes from the device header."""

from __future__ import annotations

from collections.abc import Iterable

HELPERS = {
    "floor_divide": """\
// Quotient rounded toward minus infinity.
template <class T>
TL_DEVICE T floor_divide(T a, T b) {
  T quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
""",
    "floor_remainder": """\
// Remainder with the sign of the divisor.
template <class T>
TL_DEVICE T floor_remainder(T a, T b) {
  T remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}
""",
    "shift_left": """\
// a * 2^n that wraps; 0 for n of the width and more, where C++ defines nothing.
template <class T>
TL_DEVICE T shift_left(T a, T n) {
  return (uint64_t)n < 8 * sizeof(T) ? (T)((uint64_t)a << n) : 0;
}
""",
    "shift_right": """\
// a / 2^n toward minus infinity; 0 or -1 for n of the width and more, where C++ defines nothing.
template <class T>
TL_DEVICE T shift_right(T a, T n) {
  return (uint64_t)n < 8 * sizeof(T) ? (T)(a >> n) : a < 0 ? (T)-1 : (T)0;
}
""",
    "bit_cast": """\
// The same bits as another type.
template <class To, class From>
TL_DEVICE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the width");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}
""",
}


def definitions(names: Iterable[str]) -> str:
    """The text of the helpers, in a fixed order."""
    wanted = set(names)
    return "\n".join(text for name, text in HELPERS.items() if name in wanted)
