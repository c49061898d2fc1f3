"""Names of element types, as kernels and manifests write them."""

from __future__ import annotations

import torch


def name_of(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")
