"""Operators of tile_ops beside torch's way to say the same, and the bound.

On the CPU `benchmarks/run.py --only operators` measures them. On an NVIDIA GPU: `python benchmarks/operators.py [--json FILE]
[--only OPERATOR]`, with tile-ops from its wheels (packages/tile-ops/tests/on_device.py) or with the compiler. Shapes are
those of the GPU figures of other libraries; a CPU gets the same with fewer rows. Every result is compared with torch's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

import tile_ops
from tile_ops.dequantize.reference import dequantize

COPY_BYTES = 1 << 28  # larger than the caches
#: How far ours and torch's may be apart, relative to the root mean square: both round to the type.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True)
class Case:
    """One call: ours, torch's, and the work that it implies at least. `flops` 0: only memory bounds it."""

    operator: str
    label: str
    dtype: torch.dtype
    ours: Callable[[], Any]
    torch: Callable[[], Any]
    bytes: float
    flops: float = 0.0


def cases(device: str, quick: bool = False) -> Iterator[Case]:
    """Operator by operator."""
    for family in (dequant_matmul, flash_attention, matmul, rms_norm):
        yield from islice(family(device), 1 if quick else None)


def dequant_matmul(device: str) -> Iterator[Case]:
    """4-bit weights with a scale for each 128 (NF4: 64), from one token to a prompt (V0, M2), beside a product with halves."""
    shapes = [(1, 16384, 16384), (16, 16384, 16384), (64, 16384, 16384), (1, 28672, 8192), (4096, 28672, 8192)]
    dtype = torch.float16
    for m, n, k in shapes if device == "cuda" else [(1, 4096, 4096), (16, 4096, 4096)]:
        for format, group in (("uint4", 128), ("nf4", 64)):
            w = tile_ops.quantize(torch.randn(n, k, device=device, dtype=dtype), format=format, group_size=group)
            options = {"scales": w.scales, "zeros": w.zeros, "format": format, "group_size": group}
            x, halves = torch.randn(m, k, device=device, dtype=dtype), dequantize(w.packed, **options).to(dtype)
            yield Case(
                "dequant_matmul",
                f"dequant_matmul {format} {m}x{n}x{k}",
                dtype,
                lambda x=x, w=w, options=options: tile_ops.dequant_matmul(x, w.packed, **options),
                lambda x=x, halves=halves: x @ halves.T,
                n * k / 2 + w.scales.nbytes + 2.0 * m * (n + k),
                2.0 * m * n * k,
            )


def flash_attention(device: str) -> Iterator[Case]:
    """Prompts of decoders (FA4, L, GQA): batch, tokens, heads, heads of keys; head dimension 128."""
    shapes = [(1, 4096, 32, 32), (4, 4096, 32, 32), (4, 8192, 32, 8)] if device == "cuda" else [(1, 1024, 8, 8)]
    dim = 128
    dtypes = (torch.float16,) if device == "cuda" else (torch.float32, torch.bfloat16)
    for dtype, (batch, tokens, heads, heads_kv), causal in product(dtypes, shapes, (True, False)):
        q = torch.randn(batch, tokens, heads, dim, device=device, dtype=dtype)
        k, v = (torch.randn(batch, tokens, heads_kv, dim, device=device, dtype=dtype) for _ in "kv")

        def peer(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            operands = (x.transpose(1, 2) for x in (q, k, v))
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(*operands, is_causal=causal, enable_gqa=k.shape[2] != q.shape[2]).transpose(1, 2)

        yield Case(
            "flash_attention",
            f"flash_attention {str(dtype).removeprefix('torch.')} b{batch} s{tokens} h{heads}/{heads_kv} "
            + ("causal" if causal else "full"),
            dtype,
            lambda q=q, k=k, v=v, causal=causal: tile_ops.flash_attention(q, k, v, causal=causal),
            peer,
            2.0 * (q.nbytes + k.nbytes),
            4.0 * batch * heads * tokens**2 * dim * (0.5 if causal else 1.0),
        )


def matmul(device: str) -> Iterator[Case]:
    """Layers of large language models (M0 to M3, V0), weights stored as torch.nn.Linear does; on a CPU 1/16 of the rows."""
    shapes = [(4096, 1024, 8192), (4096, 8192, 8192), (4096, 28672, 8192), (4096, 8192, 28672), (1, 16384, 16384)]
    if device == "cpu":
        shapes = [(256, 1024, 8192), (256, 4096, 4096), (1, 4096, 4096)]
    for dtype in (torch.float16, torch.bfloat16) if device == "cuda" else (torch.float32, torch.bfloat16):
        for m, n, k in shapes:
            a, w = torch.randn(m, k, device=device, dtype=dtype), torch.randn(n, k, device=device, dtype=dtype)
            yield Case(
                "matmul",
                f"matmul {str(dtype).removeprefix('torch.')} {m}x{n}x{k}",
                dtype,
                lambda a=a, w=w: tile_ops.matmul(a, w.T),
                lambda a=a, w=w: a @ w.T,
                a.element_size() * (m * n + m * k + n * k),
                2.0 * m * n * k,
            )


def rms_norm(device: str) -> Iterator[Case]:
    """RMSNorm, and RMSNorm with SiLU over channels as video autoencoders have them."""
    rows = 1 << (16 if device == "cuda" else 11)
    dtype = torch.float16 if device == "cuda" else torch.float32
    for columns, activation in ((4096, None), (8192, None), (160, "silu"), (320, "silu"), (1024, "silu")):
        m = rows * 4096 // columns
        x, weight = (
            torch.randn(m, columns, device=device, dtype=dtype),
            torch.randn(columns, device=device, dtype=dtype),
        )

        def peer(x: Any = x, weight: Any = weight, activation: Any = activation) -> Any:
            y = torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)
            return torch.nn.functional.silu(y) if activation else y

        yield Case(
            "rms_norm",
            f"rms_norm{'+silu' if activation else ''} {m}x{columns}",
            dtype,
            lambda x=x, weight=weight, activation=activation: tile_ops.rms_norm(x, weight, activation=activation),
            peer,
            2.0 * x.numel() * x.element_size(),
        )


def agree(case: Case) -> None:
    """Fails where ours is not what torch computes."""
    found, expected = case.ours(), case.torch()
    typical = expected.double().square().mean().sqrt()
    error = float(((found.double() - expected.double()).abs() / (expected.double().abs() + typical)).max())
    assert error <= TOLERANCE[case.dtype], f"{case.label}: ours and torch's differ by {error:.1e}"


def line(case: Case, times: dict[str, float], copy: float, peak: float) -> dict[str, Any]:
    """`times` in seconds; `copy` bytes and `peak` operations per second bound the call."""
    by = {"memory": case.bytes / copy, "arithmetic": case.flops / peak if case.flops else 0.0}
    reason = max(by, key=lambda name: by[name])
    work, unit = (case.flops / 1e9, "GFLOP/s") if reason == "arithmetic" else (case.bytes / 1e9, "GB/s")
    return {
        "what": case.label,
        "unit": unit,
        "rates": {**{name: work / t for name, t in times.items()}, "bound": work / by[reason]},
        "best peer": "torch",
        "ratio": times["torch"] / times["ours"],
        "of bound": by[reason] / times["ours"],
        "bound by": reason,
    }


def on_cpu(quick: bool) -> Iterator[dict[str, Any]]:
    """Lines for `measure.py`. The bound is what this machine copies, and the best product of 1024x1024 matrices."""
    from paired import paired

    copy = 2 * COPY_BYTES / paired({"copy": copying(COPY_BYTES, "cpu")}, 1)["copy"]
    peaks = {dtype: product_rate(dtype) for dtype in (torch.float32, torch.bfloat16)}
    for case in cases("cpu", quick):
        agree(case)
        yield line(
            case, paired({"ours": case.ours, "torch": case.torch}, 1), copy, peaks.get(case.dtype, peaks[torch.float32])
        )


def product_rate(dtype: torch.dtype) -> float:
    """Operations per second of the better of ours and torch's."""
    from paired import paired

    a = torch.randn(1024, 1024).to(dtype)
    return 2 * 1024**3 / min(paired({"ours": lambda: tile_ops.matmul(a, a), "torch": lambda: a @ a}, 1).values())


def copying(size: int, device: str) -> Callable[[], Any]:
    """A copy of so many bytes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def main() -> int:
    """On this machine's GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", help="an operator")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent / "gpu"))
    from cases import PEAK_TFLOPS
    from measure import L2_BYTES, times_ms

    flush = torch.empty(L2_BYTES, dtype=torch.uint8, device="cuda")
    copy = 2 * 8 * COPY_BYTES / times_ms({"copy": copying(8 * COPY_BYTES, "cuda")}, flush)["copy"] * 1e3
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copies {copy / 1e9:.0f} GB/s", flush=True)
    lines = []
    for case in cases("cuda"):
        if given.only and case.operator not in given.only:
            continue
        agree(case)
        times = {name: ms / 1e3 for name, ms in times_ms({"ours": case.ours, "torch": case.torch}, flush).items()}
        peak = PEAK_TFLOPS[str(case.dtype).removeprefix("torch.")] * 1e12 if case.flops else 1.0
        lines.append(line(case, times, copy, peak))
        print(
            f"{case.label}: {times['ours'] * 1e3:.4f} ms, torch {times['torch'] * 1e3:.4f} ms "
            f"({lines[-1]['ratio']:.2f}); {lines[-1]['of bound']:.2f} of the bound by {lines[-1]['bound by']}",
            flush=True,
        )
        if given.json is not None:
            given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "lines": lines}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
