"""What a call keeps between its kernels, to be offered with its results (`again.offer`)."""

from __future__ import annotations

from torch import Tensor, float32
from torch import dtype as torch_dtype


class Temporaries:
    """New tensors on the device of an operand, of undefined content; `all` that there are."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self.all: list[Tensor] = []

    def __call__(self, *shape: int, dtype: torch_dtype = float32) -> Tensor:
        self.all.append(self._like.new_empty(shape, dtype=dtype))
        return self.all[-1]
