"""Products of many shapes beside cuBLAS, on an NVIDIA GPU: `python benchmarks/products.py [--only PART] [--json FILE]`.

Shapes of layers (M0 to M7), shapes that no tile divides or that fill a part of the chip, and products of groups beside
a loop and torch's own. Random data; every result is compared with one in float64; medians, all of a case in turns, the L2
cache overwritten before each call. Kernels are compiled beforehand, in many processes.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import tile_ops
from tile_ops.gemm.reference import matmul as exact
from tile_ops.grouped_gemm.reference import grouped_matmul as exact_groups

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

LAYERS = [
    (4096, 1024, 8192),
    (4096, 8192, 8192),
    (4096, 28672, 8192),
    (4096, 8192, 28672),
    (8192, 1024, 8192),
    (8192, 8192, 8192),
    (8192, 28672, 8192),
    (8192, 8192, 28672),
]
#: With a scale for each row: layers, fewer tokens, and extents that tiles do not divide.
SCALED_ROWS = [
    *((4096, n, k) for n, k in ((1024, 8192), (8192, 8192), (28672, 8192), (8192, 28672))),
    *((m, 8192, 8192) for m in (16, 128)),
    (512, 5120, 5120),
    (2048, 5120, 5120),
    (1000, 4096, 4096),
    (3008, 3008, 4096),
]
#: Multiples of no tile, few tiles, little more than a wave of them, long sums, rows at odd addresses (k = 777).
ODD = [
    (17, 2560, 4096),
    (64, 5120, 4096),
    (100, 1000, 4096),
    (100, 10000, 4096),
    (128, 128, 16384),
    (250, 2560, 4096),
    (250, 5120, 16384),
    (250, 10000, 4096),
    (512, 1024, 16384),
    (1000, 1000, 4096),
    (1000, 1000, 16384),
    (1000, 2560, 4096),
    (1000, 5120, 777),
    (1000, 5120, 4096),
    (1000, 10000, 16384),
    (2000, 2560, 4096),
    (2000, 5120, 776),
    (2000, 5120, 4096),
    (3000, 2560, 4096),
    (3000, 5120, 4096),
    (4224, 8448, 4096),
    (5000, 1000, 4096),
    (5000, 2560, 777),
    (5000, 5120, 4096),
    (5000, 10000, 4096),
]
#: Tokens, groups, n, k: experts of Mixtral and DeepSeek, and layers of many small ones.
GROUPS = [(4096, 8, 14336, 4096), (8192, 32, 2048, 7168), (512, 64, 1408, 2048), (128, 16, 4096, 4096)]
#: Of layers in training: the gradients of x ("dx") and of the weights ("dw").
TRAINED = [(8192, 8, 4096, 4096), (16384, 64, 1408, 2048), (1000, 8, 2048, 2048)]
#: Largest error beside |expected| and the root mean square of `expected`.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class Case:
    """Ours first, then the peers; `flops` of one call."""

    ours: Callable[[], torch.Tensor]
    peers: dict[str, Callable[[], torch.Tensor]]
    exact: Callable[[], torch.Tensor]
    why: Callable[[], str]
    flops: float


def labels() -> list[str]:
    """Of all cases."""
    found = [f"{kind} {m}x{n}x{k}" for kind in ("f16", "bf16", "fp8") for m, n, k in LAYERS]
    found += [f"f16 {m}x{n}x{k}" for m, n, k in ODD]
    found += [f"fp8 rows {m}x{n}x{k}" for m, n, k in SCALED_ROWS]
    found += ["grouped bf16 " + "x".join(map(str, shape)) for shape in GROUPS]
    return found + [f"grouped {of} bf16 " + "x".join(map(str, shape)) for of in ("dx", "dw") for shape in TRAINED]


def case(label: str) -> Case:
    """Its operands, on the GPU, and calls."""
    torch.manual_seed(0)
    kind, shape = label.rsplit(" ", 1)
    sizes = [int(n) for n in shape.split("x")]
    if kind.startswith("grouped"):
        _, *gradient, _ = kind.split()
        return grouped_gradient(*gradient, *sizes) if gradient else grouped(*sizes)
    m, n, k = sizes
    if kind.startswith("fp8"):
        return scaled(m, n, k, rows=kind == "fp8 rows")
    dtype = torch.float16 if kind == "f16" else torch.bfloat16
    a, w = (torch.randn(rows, k, device="cuda", dtype=dtype) for rows in (m, n))
    return Case(
        lambda: tile_ops.matmul(a, w.T),
        {"cuBLAS": lambda: a @ w.T},
        lambda: exact(a, w.T),
        lambda: tile_ops.explain(tile_ops.matmul, a, w.T).why,
        2.0 * m * n * k,
    )


def scaled(m: int, n: int, k: int, rows: bool) -> Case:
    """float8_e4m3 with a scale for each tensor, or for each row of both, to bfloat16."""
    a, w = (torch.randn(extent, k, device="cuda").to(torch.float8_e4m3fn) for extent in (m, n))
    of_a, of_b = ((m, 1), (1, n)) if rows else ((), ())
    scales = {"scale_a": torch.rand(of_a, device="cuda") + 0.5, "scale_b": torch.rand(of_b, device="cuda") + 0.5}
    return Case(
        lambda: tile_ops.matmul(a, w.T, **scales),
        {"cuBLAS": lambda: torch._scaled_mm(a, w.T, out_dtype=torch.bfloat16, use_fast_accum=True, **scales)},
        lambda: exact(a, w.T, **scales),
        lambda: tile_ops.explain(tile_ops.matmul, a, w.T, **scales).why,
        2.0 * m * n * k,
    )


def grouped(tokens: int, groups: int, n: int, k: int) -> Case:
    """Tokens spread over the groups at random; weights stored as layers store them."""
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16).mT
    sizes = torch.bincount(torch.randint(groups, (tokens,), device="cuda"), minlength=groups).int()
    ends, known = sizes.cumsum(0).int(), sizes.tolist()
    return Case(
        lambda: tile_ops.grouped_matmul(x, weights, sizes),
        {
            "loop": lambda: torch.cat([part @ w for part, w in zip(x.split(known), weights)]),
            "torch._grouped_mm": lambda: torch._grouped_mm(x, weights, offs=ends),
        },
        lambda: exact_groups(x, weights, sizes),
        lambda: tile_ops.explain(tile_ops.grouped_matmul, x, weights, sizes).why,
        2.0 * tokens * n * k,
    )


def grouped_gradient(of: str, tokens: int, groups: int, n: int, k: int) -> Case:
    """What autograd computes of `grouped_matmul`, beside torch's own product of groups."""
    x, dy = (torch.randn(tokens, extent, device="cuda", dtype=torch.bfloat16) for extent in (k, n))
    weights = torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16).mT
    sizes = torch.bincount(torch.randint(groups, (tokens,), device="cuda"), minlength=groups).int()
    ends, known = sizes.cumsum(0).int(), sizes.tolist()
    leaf = (x if of == "dx" else weights).requires_grad_()
    y = tile_ops.grouped_matmul(x, weights, sizes)

    def exact() -> torch.Tensor:
        if of == "dx":
            return exact_groups(dy, weights.detach().mT, sizes)
        parts = zip(x.double().split(known), dy.double().split(known))
        return torch.stack([part.T @ gradient for part, gradient in parts])

    peer: Callable[[], torch.Tensor] = (
        (lambda: torch._grouped_mm(dy, weights.detach().mT, offs=ends))
        if of == "dx"
        else (lambda: torch._grouped_mm(x.T, dy, offs=ends))
    )
    return Case(
        lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)[0],
        {"torch._grouped_mm": peer},
        exact,
        lambda: "as autograd calls it",
        2.0 * tokens * n * k,
    )


def warm(label: str) -> str:
    """One call: its kernels are compiled, to the cache on disk."""
    case(label).ours()
    torch.cuda.synchronize()
    return label


def line(label: str, flush: torch.Tensor) -> dict[str, Any]:
    """Milliseconds of each, the error of ours, and why our kernels were taken."""
    from measure import times_ms

    now = case(label)
    expected = now.exact()
    typical = expected.square().mean().sqrt()

    def error(found: torch.Tensor) -> float:
        return float(((found.double() - expected).abs() / (expected.abs() + typical)).nan_to_num(nan=math.inf).max())

    found = now.ours()
    of_ours, of_peers = error(found), [error(peer()) for peer in now.peers.values()]
    # Matrix instructions sum float8 to some 14 bits: what is right there is what cuBLAS finds.
    right = of_ours <= max(TOLERANCE[found.dtype], *(1.5 * e for e in of_peers))
    times = times_ms({"ours": now.ours, **now.peers}, flush)
    return {"label": label, "ms": times, "error": of_ours, "right": right, "why": now.why(), "flops": now.flops}


def main() -> int:
    """Compile, then measure; 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a part of a label, as 'bf16 ' or 'x4096'")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=15)
    given = parser.parse_args()
    chosen = [name for name in labels() if not given.only or any(part in name for part in given.only)]
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(warm, chosen))
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    lines = []
    for label in chosen:
        lines.append(line(label, flush))
        times, ours = lines[-1]["ms"], lines[-1]["ms"]["ours"]
        peers = ", ".join(f"{name} {ms:.4f} ({ms / ours:.2f})" for name, ms in times.items() if name != "ours")
        rate = lines[-1]["flops"] / ours / 1e9
        state = "" if lines[-1]["right"] else "WRONG "
        print(f"{state}{label}: {ours:.4f} ms, {rate:.0f} TFLOP/s; {peers}; {lines[-1]['why']}", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "lines": lines}, indent=1))
    return int(not all(result["right"] for result in lines))


if __name__ == "__main__":
    sys.exit(main())
