"""Arguments of a kernel as files, for the process that measures it: raw bytes, beside a description in JSON."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.ir.dtypes import dtype_of

Described = dict[str, Any]


def save(values: Sequence[Any], folder: Path, name: str) -> list[Described]:
    """Write tensors to `folder` and describe all `values`; numbers stand in the description itself."""
    described: list[Described] = []
    for index, value in enumerate(values):
        if isinstance(value, (bool, numbers.Number)):
            described.append({"value": value.item() if isinstance(value, np.generic) else value})
            continue
        file = f"{name}-{index}.bin"
        array, strides = _bytes_of(value)
        array.tofile(folder / file)
        entry: Described = {"file": file, "dtype": str(dtype_of(value.dtype)), "shape": [int(n) for n in value.shape]}
        described.append(entry | ({} if strides is None else {"strides": strides}))
    return described


def load(described: Sequence[Described], folder: Path, device: str = "cpu") -> list[Any]:
    """The values again: numpy arrays on the CPU, torch tensors elsewhere."""
    return [d["value"] if "value" in d else _tensor(d, folder, device) for d in described]


def _bytes_of(value: Any) -> tuple[np.ndarray[Any, Any], list[int] | None]:
    """The elements in row-major order as bytes, and the strides in elements where they are others."""
    if hasattr(value, "is_contiguous"):  # torch
        import torch

        whole = value.detach().to("cpu").contiguous()
        flat = whole.reshape(-1).view(torch.uint8).numpy() if whole.numel() else np.empty(0, np.uint8)
        return flat, None if value.is_contiguous() else [int(s) for s in value.stride()]
    array = np.asarray(value)
    flat = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return flat, None if array.flags.c_contiguous else [s // array.itemsize for s in array.strides]


def _tensor(described: Described, folder: Path, device: str) -> Any:
    raw = np.fromfile(folder / described["file"], np.uint8)
    dtype, shape, strides = dtype_of(described["dtype"]), tuple(described["shape"]), described.get("strides")
    if device == "cpu":
        array = raw.view(dtype.as_numpy()).reshape(shape)
        if strides is None:
            return array
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        memory = np.zeros(span, array.dtype)
        strided = np.lib.stride_tricks.as_strided(memory, shape, [s * array.itemsize for s in strides])
        strided[...] = array
        return strided
    import torch

    host = torch.from_numpy(raw).view(dtype.as_torch()).reshape(shape)
    if strides is None:
        return host.to("cuda")
    return torch.empty_strided(shape, strides, dtype=host.dtype, device="cuda").copy_(host)


def copied(value: Any) -> Any:
    """A tensor of its own with the same content and strides; numbers as they are."""
    if hasattr(value, "clone"):
        return value.clone()
    if not isinstance(value, np.ndarray):
        return value
    return np.copy(value, order="K")


def poison(value: Any) -> None:
    """Overwrite a tensor so that elements which a kernel leaves out show: every byte 255, which is NaN or -1."""
    if hasattr(value, "is_contiguous"):
        import torch

        if value.is_contiguous() and value.dtype != torch.bool:
            value.view(torch.uint8).fill_(255)
    elif value.flags.c_contiguous and value.dtype != np.bool_:
        value.view(np.uint8).fill(255)
