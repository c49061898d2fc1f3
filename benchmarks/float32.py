"""float32 that is not rounded to tf32, on NVIDIA: no tensor core takes it, each thread multiplies alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from operators import Case

import tile_ops

#: m, n, k of products; the last ones leave multiprocessors idle unless they are cut along k.
SHAPES = [(4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (512, 4096, 4096), (2048, 2048, 8192)]
SHAPES += [(4000, 4000, 4000), (64, 4096, 4096), (256, 1024, 1024)]
#: Heads' dimensions of attention: 2 sequences of 2048 tokens, 16 heads.
DIMS = (64, 80, 96, 128, 256)


def alone(device: str) -> Iterator[Case]:
    """Products by row-major and transposed matrices, attention and its gradients."""
    for (m, n, k), (a_turned, b_turned) in product(SHAPES, ((False, False), (False, True), (True, False))):
        a = torch.randn(k, m, device=device).T if a_turned else torch.randn(m, k, device=device)
        b = torch.randn(n, k, device=device).T if b_turned else torch.randn(k, n, device=device)
        yield Case(
            "float32",
            f"matmul float32 {m}x{n}x{k} {'NT'[a_turned]}{'NT'[b_turned]}",
            torch.float32,
            lambda a=a, b=b: tile_ops.matmul(a, b),
            lambda a=a, b=b: a @ b,
            4.0 * (m * n + m * k + n * k),
            2.0 * m * n * k,
        )
    for dim, causal, gradients in product(DIMS, (False, True), (False, True)):
        yield _attention(dim, causal, gradients, device)


def _attention(dim: int, causal: bool, gradients: bool, device: str, batch: int = 2, tokens: int = 2048) -> Case:
    heads = 16
    q, k, v, dout = (torch.randn(batch, tokens, heads, dim, device=device, requires_grad=gradients) for _ in range(4))

    def ours() -> Any:
        return tile_ops.flash_attention(q, k, v, causal=causal)

    def theirs() -> Any:
        operands = (x.transpose(1, 2) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=causal).transpose(1, 2)

    def backward(out: Any) -> Any:
        return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return Case(
        "float32",
        f"attention float32 d{dim} {'causal' if causal else 'full'}{' gradients' if gradients else ''}",
        torch.float32,
        backward(ours()) if gradients else ours,
        backward(theirs()) if gradients else theirs,
        (8.0 if gradients else 4.0) * q.nbytes,
        (10.0 if gradients else 4.0) * batch * heads * tokens**2 * dim * (0.5 if causal else 1.0),
    )
