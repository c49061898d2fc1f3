"""float32 on NVIDIA: all its bits, and products rounded to tf32, as torch allows it by a switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from operators import Case

import tile_ops

#: m, n, k of products; the last ones leave multiprocessors idle unless they are cut along k.
SHAPES = [(4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (512, 4096, 4096), (2048, 2048, 8192)]
SHAPES += [(4000, 4000, 4000), (64, 4096, 4096), (256, 1024, 1024)]
#: m, n, k of products that are rounded to tf32.
ROUNDED = [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024)]
ROUNDED += [(512, 4096, 4096), (4096, 1024, 8192), (16384, 4096, 1024), (3072, 768, 8192), (1000, 3000, 500)]
#: Heads' dimensions of attention: 2 sequences of 2048 tokens, 16 heads.
DIMS = (64, 80, 96, 128, 256)


def alone(device: str) -> Iterator[Case]:
    """All bits: products by row-major and transposed matrices, attention and its gradients."""
    for label, a, b, bytes, flops in _products(SHAPES, device):
        yield Case("float32", f"matmul float32 {label}", torch.float32, *_calls(a, b), bytes, flops)
    for dim, causal, gradients in product(DIMS, (False, True), (False, True)):
        yield _attention(dim, causal, gradients, device)


def rounded(device: str) -> Iterator[Case]:
    """Products where torch allows tf32: a layer, the gradient of its operand (a row-major b) and of its weight (T by N)."""
    for label, a, b, bytes, flops in _products(ROUNDED, device):
        ours, theirs = map(_allowed, _calls(a, b))
        yield Case("tf32", f"matmul tf32 {label}", torch.float32, ours, theirs, bytes, flops, rounds_to="tf32")


def _products(
    shapes: list[tuple[int, int, int]], device: str
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, float, float]]:
    """(label, a, b, bytes, operations): neither operand transposed, b, a."""
    for (m, n, k), (a_turned, b_turned) in product(shapes, ((False, False), (False, True), (True, False))):
        a = torch.randn(k, m, device=device).T if a_turned else torch.randn(m, k, device=device)
        b = torch.randn(n, k, device=device).T if b_turned else torch.randn(k, n, device=device)
        label = f"{m}x{n}x{k} {'NT'[a_turned]}{'NT'[b_turned]}"
        yield label, a, b, 4.0 * (m * n + m * k + n * k), 2.0 * m * n * k


def _calls(a: torch.Tensor, b: torch.Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    return lambda: tile_ops.matmul(a, b), lambda: a @ b


def _allowed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call where torch allows tf32."""

    def allowed() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return call()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return allowed


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
