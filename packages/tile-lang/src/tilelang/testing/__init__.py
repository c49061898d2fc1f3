"""Helpers for tests of kernels, by the names that upstream's users import."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def main() -> None:
    """Run the tests of the calling file with pytest."""
    import pytest

    file = sys._getframe(1).f_globals.get("__file__", "")
    sys.exit(pytest.main([file, *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seed Python, numpy and (if loaded) torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def as_float64(x: Any) -> np.ndarray[Any, Any]:
    """A tensor of any library as a float64 array."""
    if type(x).__module__.split(".")[0] == "torch":
        return x.detach().to("cpu").double().numpy()
    return np.asarray(x).astype(np.float64)


def assert_close(
    actual: Any, expected: Any, *, rtol: float = 1e-2, atol: float = 1e-2, max_mismatched_ratio: float = 0.0
) -> None:
    """Raise AssertionError, with the first wrong coordinate, unless |actual - expected| <= atol + rtol * |expected|.

    NaN equals NaN, infinities must agree. `max_mismatched_ratio` of the elements may differ.
    """
    a, b = as_float64(actual), as_float64(expected)
    if a.shape != b.shape:
        raise AssertionError(f"shapes differ: {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        good = (np.abs(a - b) <= atol + rtol * np.abs(b)) | (a == b) | (np.isnan(a) & np.isnan(b))
    wrong = np.argwhere(~good)
    if len(wrong) > max_mismatched_ratio * max(a.size, 1):
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{len(wrong)} of {a.size} elements differ (rtol {rtol}, atol {atol}); "
            f"first at {first}: {a[first]!r}, expected {b[first]!r}"
        )


torch_assert_close = assert_close


def _skip_unless(present: Callable[[], bool], reason: str) -> Callable[[Any], Any]:
    def decorate(test: Any) -> Any:
        import pytest

        return pytest.mark.skipif(not present(), reason=reason)(test)

    return decorate


def _device(name: str) -> bool:
    from tile_runtime import registry

    try:
        return bool(registry.device(name).is_available())
    except Exception:
        return False


def requires_cuda(test: Any) -> Any:
    """Skip the test where no CUDA device works."""
    return _skip_unless(lambda: _device("cuda"), "needs a CUDA device")(test)


def requires_rocm(test: Any) -> Any:
    """Skip the test where no ROCm device works."""
    return _skip_unless(lambda: _device("rocm"), "needs a ROCm device")(test)


def requires_llvm(test: Any) -> Any:
    """Skip the test where the CPU target is not installed."""
    from tilelang.target import compiler_for

    return _skip_unless(lambda: compiler_for("cpu") is not None, "needs tile-compiler")(test)


def requires_package(name: str) -> Callable[[Any], Any]:
    """Skip the test where a package is not installed."""
    import importlib.util

    return _skip_unless(lambda: importlib.util.find_spec(name) is not None, f"needs {name}")


def _capability() -> tuple[int, int]:
    from tile_runtime import registry

    try:
        arch = str(registry.device("cuda").arch())
    except Exception:
        return (0, 0)
    digits = "".join(c for c in arch if c.isdigit())
    return (int(digits[:-1] or 0), int(digits[-1:] or 0))


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Callable[[Any], Any]:
    """Skip the test unless the CUDA device's compute capability compares so (ge, gt, le, lt, eq)."""
    import operator

    compare = getattr(operator, mode)
    return _skip_unless(
        lambda: _device("cuda") and compare(_capability(), (major, minor)),
        f"needs compute capability {mode} {major}.{minor}",
    )


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "ge")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "gt")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "le")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "lt")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "eq")
