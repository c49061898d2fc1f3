"""Names of element types, as kernels and manifests write them."""

from __future__ import annotations

from collections.abc import Collection

import torch


def name_of(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")


def repair(first: str, dtype: torch.dtype, other: str, possible: Collection[str]) -> str:
    """What brings two operands to one possible type, `dtype` being that of the first: "b.to(a.dtype)", or "a.float()"."""
    return f"{other}.to({first}.dtype)" if name_of(dtype) in possible else f"{first}.float()"
