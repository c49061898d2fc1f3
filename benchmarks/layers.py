"""Gradients of a layer beside torch's, as a step of training leaves them at its operands.

`python benchmarks/operators.py --only layer_gradients` measures them on a GPU, with `--cpu-time` on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from operators import Case

import tile_ops

#: Tokens, and what the layer takes and gives of each.
SHAPES = {
    "cpu": ((64, 128, 128), (128, 256, 256), (256, 512, 512), (256, 1024, 1024), (512, 768, 3072)),
    "cuda": ((4096, 4096, 4096), (8192, 4096, 14336), (8192, 5120, 5120)),
}
DTYPES = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.float16, torch.bfloat16)}


def layer_gradients(device: str) -> Iterator[Case]:
    """Of x and w, from those of x @ w.T."""
    for dtype, (m, k, n) in product(DTYPES[device], SHAPES[device]):
        x, w = (torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in ((m, k), (n, k)))
        dy = torch.randn(m, n, device=device).to(dtype)
        results = (tile_ops.matmul(x, w.T), x @ w.T)

        def backward(y: Any, x: Any = x, w: Any = w, dy: Any = dy) -> Any:
            x.grad = w.grad = None
            y.backward(dy, retain_graph=True)
            return w.grad

        yield Case(
            "layer_gradients",
            f"gradients of a layer {str(dtype).removeprefix('torch.')} {m}x{k}x{n}",
            dtype,
            lambda y=results[0], backward=backward: backward(y),
            lambda y=results[1], backward=backward: backward(y),
            2.0 * (x.nbytes + w.nbytes) + dy.nbytes,
            4.0 * m * n * k,
        )
