"""What the examples share: how a kernel gets its arrays, how far a result is from its reference and may be, and their command
line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tile_runtime.errors import ArgumentDeviceError

# The largest allowed `relative_error` of a result that was rounded to a type, or computed from operands rounded to
# it. About ten roundings of the type: the examples sum a few hundred products in float32 and round two or three times.
TOLERANCES = {"float32": 2e-6, "float16": 5e-3, "bfloat16": 4e-2, "int32": 0.0}


def run(kernel: Callable[..., Any], *arrays: Any) -> Any:
    """`kernel(*arrays)`, numpy arrays in and out. One that was compiled for a GPU gets them as torch tensors there."""
    try:
        return kernel(*arrays)
    except ArgumentDeviceError:
        import torch

        results = kernel(*(torch.tensor(x, device="cuda") for x in arrays))
        return (
            results.numpy(force=True) if isinstance(results, torch.Tensor) else [x.numpy(force=True) for x in results]
        )


def relative_error(actual: Any, expected: Any) -> float:
    """The largest |actual - expected|, each relative to |expected| plus the typical size of `expected`.

    NaN or infinity where the reference has a number gives infinity.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise ValueError(f"the result has shape {actual.shape}, the reference {expected.shape}")
    if not expected.size:
        return 0.0
    typical = np.sqrt(np.mean(np.square(expected))) or 1.0
    error = np.abs(actual - expected) / (np.abs(expected) + typical)
    return float(np.max(np.where(np.isfinite(error), error, np.inf)))


def main(check: Callable[..., float], cases: Sequence[Mapping[str, Any]], dtype: str) -> int:
    """Check all cases as the command line says (`--target`, `--execution`); the exit status is 1 if one disagrees."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")
    parser.add_argument("--execution", default="device", help="device, or interpret: run in numpy, tile by tile")
    options = parser.parse_args()
    wrong = 0
    for case in cases:
        error = check(options.target, options.execution, **case)
        verdict = "ok" if error <= TOLERANCES[dtype] else "WRONG"
        wrong += verdict != "ok"
        shown = ", ".join(f"{name}={value}" for name, value in case.items())
        print(f"{verdict:5} error {error:.1e} (up to {TOLERANCES[dtype]:.0e} for {dtype}): {shown}")
    return 1 if wrong else 0
