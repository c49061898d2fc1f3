"""Plain Triton kernels: peers, tuned over a few configurations at the first call; a reading and an empty kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

_GEMM_TILES = [(128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 64, 4, 3)]
_ATTENTION_TILES = [(128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (64, 32, 4, 2)]
_GEMV_TILES = [(1, 2048, 4), (2, 1024, 4), (2, 2048, 8), (4, 1024, 4), (4, 512, 4), (8, 512, 4), (16, 256, 4)]


@triton.autotune(
    configs=[
        triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in _GEMM_TILES
    ],
    key=["M", "N", "K"],
)
@triton.jit
def _matmul(A, B, C, M, N, K, sa, sbk, sbn, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    panel = tile // (8 * columns)  # panels of 8 rows of tiles, for the L2 cache
    height = min(rows - panel * 8, 8)
    row = panel * 8 + tile % (8 * columns) % height
    column = tile % (8 * columns) // height
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(A + i[:, None] * sa + (start + k)[None, :], mask=i[:, None] < M, other=0.0)
        b = tl.load(B + (start + k)[:, None] * sbk + j[None, :] * sbn, mask=j[None, :] < N, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(C + i[:, None] * sc + j[None, :], total.to(C.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """c = a @ b; the number of columns of a is a multiple of 64."""
    (m, k), n = a.shape, b.shape[1]
    grid: Any = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)  # noqa: E731
    _matmul[grid](a, b, c, m, n, k, a.stride(0), b.stride(0), b.stride(1), c.stride(0))


@triton.autotune(
    configs=[
        triton.Config({"BM": m, "BN": n}, num_warps=warps, num_stages=stages)
        for m, n, warps, stages in _ATTENTION_TILES
    ],
    key=["TOKENS", "DIM", "CAUSAL", "GROUP"],
)
@triton.jit
def _attention(  # type: ignore[no-untyped-def]
    Q, K, V, O, scale, HEADS, GROUP, TOKENS, DIM: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64)
    blocks = tl.cdiv(TOKENS, BM)
    block = blocks - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    batch, head_kv = head // HEADS, head % HEADS // GROUP
    at_kv = (batch * (HEADS // GROUP) + head_kv) * TOKENS * DIM
    i = block * BM + tl.arange(0, BM)
    d = tl.arange(0, DIM)
    q = tl.load(Q + head * TOKENS * DIM + i[:, None] * DIM + d[None, :])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, DIM), tl.float32)
    end = (block + 1) * BM if CAUSAL else TOKENS
    for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + at_kv + j[None, :] * DIM + d[:, None])
        scores = tl.dot(q, k)
        if CAUSAL:
            scores = tl.where(i[:, None] >= j[None, :], scores, float("-inf"))
        grown = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2((scores - grown[:, None]) * scale)
        shrink = tl.exp2((largest - grown) * scale)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(V + at_kv + j[:, None] * DIM + d[None, :])
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        largest = grown
    out = out / total[:, None]
    tl.store(O + head * TOKENS * DIM + i[:, None] * DIM + d[None, :], out.to(O.dtype.element_ty))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, causal: bool) -> None:
    """Attention forward over contiguous (batch, heads, tokens, dim); tokens are a multiple of 128."""
    batch, heads, tokens, dim = q.shape
    grid: Any = lambda meta: (triton.cdiv(tokens, meta["BM"]), batch * heads)  # noqa: E731
    scale = math.log2(math.e) / math.sqrt(dim)
    _attention[grid](q, k, v, o, scale, heads, heads // k.shape[1], tokens, dim, causal)


@triton.autotune(
    configs=[triton.Config({"BN": n, "BK": k}, num_warps=warps) for n, k, warps in _GEMV_TILES],
    key=["N", "K"],
)
@triton.jit
def _matvec(W, X, Y, N, K, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.arange(0, BK)
    total = tl.zeros((BN, BK), tl.float32)
    for start in range(0, K, BK):
        mask = (start + j)[None, :] < K
        w = tl.load(W + i.to(tl.int64)[:, None] * K + (start + j)[None, :], mask=mask & (i[:, None] < N), other=0.0)
        x = tl.load(X + start + j, mask=start + j < K, other=0.0)
        total += w.to(tl.float32) * x.to(tl.float32)[None, :]
    tl.store(Y + i, tl.sum(total, 1).to(Y.dtype.element_ty), mask=i < N)


def matvec(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    """y = w @ x."""
    n, k = w.shape
    _matvec[lambda meta: (triton.cdiv(n, meta["BN"]),)](w, x, y, n, k)


@triton.jit
def _read(A, OUT, COUNT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * COUNT * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for n in tl.static_range(COUNT):
        total += tl.load(A + at + n * BLOCK)
    tl.store(OUT + tl.program_id(0), tl.sum(total, 0))


def read(a: torch.Tensor, out: torch.Tensor, count: int, block: int, warps: int) -> None:
    """Read all of a (float32), one sum for each block of count * block elements: what the memory delivers."""
    _read[(a.numel() // (count * block),)](a, out, count, block, num_warps=warps)


@triton.jit
def _nothing(A):  # type: ignore[no-untyped-def]
    pass


def nothing(a: torch.Tensor) -> None:
    """A kernel that does nothing: what two events around a launch read."""
    _nothing[(1,)](a)
