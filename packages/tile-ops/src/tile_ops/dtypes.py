"""Names of element types, as kernels and manifests write them."""

from __future__ import annotations

from collections.abc import Collection

import torch

#: What models compute in, by the kind of target: the types of kernels in wheels, where a family's operators have no others.
SHIPPED_DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float16", "bfloat16"), "hip": ("float16", "bfloat16")}


def name_of(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")


def repair(first: str, dtype: torch.dtype, other: str, possible: Collection[str]) -> str:
    """What brings two operands to one possible type, `dtype` being that of the first: "b.to(a.dtype)", or "a.float()"."""
    return f"{other}.to({first}.dtype)" if name_of(dtype) in possible else f"{first}.float()"
