"""The math functions of the HIP header, compiled for the host, against long doubles: errors in units of the last place.

Only what the header computes itself is judged here; where it asks the compiler for a function (`__builtin_expf`), the
device's code generator writes the instructions.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_compiler.targets.hip.plugin import headers

WIDE = np.longdouble
ONE = (
    "exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf".split()
)
TWO = "pow atan2 fmod hypot".split()
SHIM = """
typedef unsigned int uint32_t; typedef unsigned long long uint64_t; typedef long long int64_t;
#define TL_DEVICE static inline
namespace device {
namespace tl { namespace detail {
TL_DEVICE uint64_t double_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
TL_DEVICE double bits_double(uint64_t x) { return __builtin_bit_cast(double, x); }
} }
#include "tl/series.h"
#include "tl/functions.h"
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: Any) -> Any:
    """Each function over arrays: `<name>(x, out, n)`, `<name>(x, y, out, n)`, for doubles and with an f for floats."""
    folder: Path = tmp_path_factory.mktemp("functions")
    (folder / "tl").mkdir()
    for name in ("tl/series.h", "tl/functions.h"):
        (folder / name).write_text(headers()[name])
    lines = [SHIM]
    for suffix, kind in (("", "double"), ("f", "float")):
        for name in (n + suffix for n in ONE):
            loop = f"for (long i = 0; i < n; ++i) out[i] = device::{name}(x[i]);"
            lines.append(f'extern "C" void run_{name}(const {kind}* x, {kind}* out, long n) {{ {loop} }}')
        for name in (n + suffix for n in TWO):
            loop = f"for (long i = 0; i < n; ++i) out[i] = device::{name}(x[i], y[i]);"
            lines.append(
                f'extern "C" void run_{name}(const {kind}* x, const {kind}* y, {kind}* out, long n) {{ {loop} }}'
            )
    (folder / "all.cpp").write_text("\n".join(lines))
    zig = [sys.executable, "-m", "ziglang"]
    flags = ["-O2", "-fno-sanitize=all", "-fPIC"]
    compile = ["c++", "-c", "-std=c++17", "-mfma", "-ffp-contract=off", "-I.", "all.cpp", "-o", "all.o"]
    link = ["cc", "-shared", "all.o", "-o", "all.so"]  # as C: the C++ library, built from source, would take minutes
    for step in (compile, link):
        done = subprocess.run(
            [*zig, step[0], *flags, *step[1:]], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "all.so"))


def run(library: Any, name: str, *args: Any) -> Any:
    out = np.empty_like(args[0])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*args, out)]
    getattr(library, f"run_{name}")(*pointers, ctypes.c_long(len(out)))
    return out


def units(got: Any, want: Any) -> Any:
    """Errors in units in the last place of the result; both NaN, or both the same infinity, is 0."""
    rounded = want.astype(got.dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    with np.errstate(invalid="ignore", over="ignore"):
        step = np.spacing(np.minimum(np.abs(rounded), np.finfo(got.dtype).max).astype(got.dtype))
        error = np.abs(got.astype(WIDE) - want) / np.abs(step.astype(WIDE))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error)).astype("float64")


def _exp10(x: Any) -> Any:
    return np.power(WIDE(10), x)


REFERENCES = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "exp10": _exp10, "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, 3.0, -3.0]


def samples(name: str, dtype: str, seed: int) -> Any:
    """Numbers of every size that the function has a finite value for, and the edges."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 64, 20000, dtype="uint64").view("float64")
    if dtype == "float32":
        bits = rng.integers(0, 1 << 32, 20000, dtype="uint32").view("float32")
    near = np.concatenate([rng.uniform(-b, b, 4000) for b in (0.01, 1, 7, 90, 800)])
    with np.errstate(all="ignore"):
        return np.concatenate([bits, near, EDGES]).astype(dtype)


BOUNDS = {"tan": 4.0, "tanh": 4.0, "sinh": 4.0, "asin": 4.0, "acos": 4.0, "atan": 4.0, "atanh": 4.0}


@pytest.mark.parametrize("name", [n for n in ONE if n != "erf"])
def test_one_argument(library: Any, name: str) -> None:
    reference = REFERENCES.get(name) or getattr(np, name)
    x = samples(name, "float64", 1)
    with np.errstate(all="ignore"):
        error = units(run(library, name, x), reference(x.astype(WIDE)))
    assert error.max() <= BOUNDS.get(name, 2.0), (name, x[error.argmax()], error.max())


@pytest.mark.parametrize("name", [n for n in ONE if n not in ("exp", "exp2", "log", "log2", "log10", "erf")])
def test_one_float(library: Any, name: str) -> None:
    reference = REFERENCES.get(name) or getattr(np, name)
    x = samples(name, "float32", 2)
    with np.errstate(all="ignore"):
        error = units(run(library, f"{name}f", x), reference(x.astype(WIDE)))
    assert error.max() <= (2.0 if name in ("exp10", "tanh") else 0.51), (name, x[error.argmax()], error.max())


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("suffix", ["", "f"])
def test_two_arguments(library: Any, name: str, suffix: str) -> None:
    reference = REFERENCES.get(name) or getattr(np, name)
    dtype = "float32" if suffix else "float64"
    x, y = samples(name, dtype, 3), np.random.default_rng(4).permutation(samples(name, dtype, 5))
    a, b = np.meshgrid(np.asarray(EDGES, dtype), np.asarray([*EDGES, 4.0, -5.0, 1e15], dtype))
    x, y = np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])
    with np.errstate(all="ignore"):
        error = units(run(library, name + suffix, x, y), reference(x.astype(WIDE), y.astype(WIDE)))
    bad = error.argmax()
    assert error.max() <= (0.51 if suffix else 4.0), (x[bad], y[bad], error.max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_function(library: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = samples("erf", dtype, 6)
    want = torch.special.erf(torch.from_numpy(x.astype("float64"))).numpy()
    error = units(run(library, "erf" if dtype == "float64" else "erff", x), want.astype(WIDE))
    assert error.max() <= 4.0, (x[error.argmax()], error.max())
