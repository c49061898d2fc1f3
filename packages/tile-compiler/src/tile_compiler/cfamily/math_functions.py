"""The math functions of CUDA and HIP, which have the same names.

Sources: CUDA Math API (https://docs.nvidia.com/cuda/cuda-math-api/), HIP math API
(https://rocm.docs.amd.com/projects/HIP/en/latest/reference/math_api.html).
"""

from __future__ import annotations

# Names of C's `double` functions; the `float` ones end in f. The IR's name stands first where it differs.
_SAME = """
exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 erf sqrt
rsqrt pow fmod floor ceil round trunc nearbyint rint fabs copysign hypot fma ldexp
""".split()
FLOAT_FUNCTIONS = {name: name for name in _SAME} | {"abs": "fabs"}
#: Those of float32 that the device headers also have in an approximate form, as `tl::fast::<name>`.
APPROXIMATE = frozenset("exp exp2 exp10 log log2 log10 sin cos tan sqrt rsqrt pow".split())
FLOAT_TESTS = ("isnan", "isinf", "isfinite")
BIT_COUNTS = {"popcount": ("__popc", "__popcll"), "clz": ("__clz", "__clzll")}


def function_name(name: str, bits: int, *, fast: bool = False) -> str:
    """C's name of a float function for 32 or 64 bits; `fast`: that of its approximation, if there is one."""
    if fast and bits == 32 and name in APPROXIMATE:
        return f"tl::fast::{name}"
    return FLOAT_FUNCTIONS[name] + ("f" if bits == 32 else "")
