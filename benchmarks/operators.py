"""Operators of tile_ops beside torch's way to say the same, and the bound.

On the CPU `benchmarks/run.py --only operators` measures them. On an NVIDIA GPU: `python benchmarks/operators.py [--json FILE]
[--only OPERATOR]`, with tile-ops from its wheels (packages/tile-ops/tests/on_device.py) or with the compiler. Shapes are
those of the GPU figures of other libraries; a CPU gets the same with fewer rows. Every result is compared with torch's.

`--kernels` tells the time of each kernel of ours as well, by itself: the host is ahead, so that none waits for its launch.

`python benchmarks/operators.py --cpu-time [--only OPERATOR]` tells the CPU time of one thread for the CPU's cases and those of
operators_cpu.py, ours and torch's in turns: other work on the machine counts for less there.

`python benchmarks/operators.py --host` tells what a call costs the host, on the GPU or without one on the CPU: tensors are so
small that nothing else counts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import torch

import tile_ops
from tile_ops.dequantize.reference import dequantize

COPY_BYTES = 1 << 28  # larger than the caches
AHEAD = 2_000_000  # clocks, a millisecond: more than a host needs for one call
#: How far ours and torch's may be apart, relative to the root mean square: both round to the type, or take operands so.
TOLERANCE = {"tf32": 5e-3, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.int8: 0.0}


@dataclass(frozen=True)
class Case:
    """One call: ours, torch's, and the work that it implies at least. `flops` 0: only memory bounds it.

    `rounds_to`: the type that products of float32 take their operands as, if it is another. `recorded` are seconds of
    peers that cannot run beside it, measured on another lease of the same GPU.
    """

    operator: str
    label: str
    dtype: torch.dtype
    ours: Callable[[], Any]
    torch: Callable[[], Any]
    bytes: float
    flops: float = 0.0
    rounds_to: str = field(default="", kw_only=True)
    recorded: Mapping[str, float] = field(default_factory=dict, kw_only=True)


def cases(device: str, quick: bool = False) -> Iterator[Case]:
    """Operator by operator."""
    families: tuple[Callable[[str], Iterator[Case]], ...] = (dequant_matmul, dequant_integers)
    families += (flash_attention, matmul, rms_norm)
    if device == "cuda":
        from float32 import alone, rounded
        from layers import layer_gradients
        from linear_attention import linear_gradients

        families += (attention_backward, chunk_scan, chunk_state, mla_decode, norm_gradients, linear_gradients)
        families += (layer_gradients, alone, rounded)
    for family in families:
        yield from islice(family(device), 1 if quick else None)


def dequant_matmul(device: str) -> Iterator[Case]:
    """4-bit weights with a scale for each 128 (NF4: 64), from one token to a prompt (V0, M2, M3), beside a product with
    halves."""
    shapes = [(1, 16384, 16384), (16, 16384, 16384), (64, 16384, 16384), (1, 28672, 8192), (4096, 28672, 8192)]
    shapes += [(64, 28672, 8192), (64, 8192, 28672)]
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


def dequant_integers(device: str) -> Iterator[Case]:
    """2- and 4-bit integers against int8, one token, beside a product with halves (the paper's int2 x int8, V0)."""
    n, k = (16384, 16384) if device == "cuda" else (4096, 4096)
    dtype = torch.float16
    for format in ("int2", "int4"):
        w = tile_ops.quantize(torch.randn(n, k, device=device), format=format, group_size=-1)
        scales = w.scales / 127  # float16 has no sums of 127 times as much
        options = {"scales": scales, "format": format, "group_size": -1}
        x = torch.randint(-127, 128, (1, k), device=device, dtype=torch.int8)
        floats, halves = x.to(dtype), dequantize(w.packed, **options).to(dtype)
        yield Case(
            "dequant_integers",
            f"dequant_matmul {format} x int8 1x{n}x{k}",
            dtype,
            lambda x=x, w=w, options=options: tile_ops.dequant_matmul(x, w.packed, **options),
            lambda x=floats, halves=halves: x @ halves.T,
            float(w.packed.nbytes + w.scales.nbytes + k + 4 * n),
            2.0 * n * k,
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
    """Layers of large language models (M0 to M3, V0), weights stored as torch.nn.Linear does; on a CPU 1/16 of the rows,
    and several matrices."""
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
    for batch, size in ((8, 512), (4, 1024), (32, 256)) if device == "cpu" else ():
        a, b = (torch.randn(batch, size, size) for _ in "ab")
        yield Case(
            "matmul",
            f"matmul float32 {batch} of {size}x{size}x{size}",
            torch.float32,
            lambda a=a, b=b: tile_ops.matmul(a, b),
            lambda a=a, b=b: a @ b,
            3.0 * a.nbytes,
            2.0 * batch * size**3,
        )


def rms_norm(device: str) -> Iterator[Case]:
    """RMSNorm, and RMSNorm with SiLU over channels as video autoencoders have them."""
    rows = 1 << (16 if device == "cuda" else 11)
    dtype = torch.float16 if device == "cuda" else torch.float32
    channels = (96, 160, 224, 288, 320, 640, 1024) if device == "cuda" else (160, 320, 1024)
    for columns, activation in ((4096, None), (8192, None), *product(channels, ("silu",))):
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


def norm_gradients(device: str) -> Iterator[Case]:
    """Gradients of norms' operands and weights and of softmax's operand: x, its gradient and that of the result pass once."""
    functional = torch.nn.functional
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    of_cpu = ((512, 1024), (2048, 160), (64, 4096), (4096, 20), (2048, 72))
    shapes = ((16384, 4096), (32768, 1024), (2048, 8192)) if device == "cuda" else of_cpu
    for m, n in shapes:
        x, w, b, dy = (torch.randn(s, device=device, dtype=dtype) for s in ((m, n), n, n, (m, n)))
        leaves = tuple(t.requires_grad_() for t in (x, w, b))
        for name, ours, peer, count in (
            ("rms_norm", tile_ops.rms_norm(x, w), functional.rms_norm(x, (n,), w, 1e-6), 2),
            ("layer_norm", tile_ops.layer_norm(x, w, b), functional.layer_norm(x, (n,), w, b, 1e-5), 3),
            (
                "layer_norm's x",
                tile_ops.layer_norm(x, w.detach(), b.detach()),
                functional.layer_norm(x, (n,), w.detach(), b.detach(), 1e-5),
                1,
            ),
            ("softmax", tile_ops.softmax(x), functional.softmax(x, -1), 1),
        ):

            def backward(y: Any, leaves: Any = leaves[:count], dy: Any = dy) -> Any:
                return torch.autograd.grad(y, leaves, dy, retain_graph=True)[0]

            yield Case(
                "norm_gradients",
                f"gradients of {name} {m}x{n}",
                dtype,
                lambda y=ours, backward=backward: backward(y),
                lambda y=peer, backward=backward: backward(y),
                3.0 * x.nbytes,
            )


def attention_backward(device: str) -> Iterator[Case]:
    """dQ, dK and dV of prompts of 4 x 4096 tokens, 32 heads of 128 and 16 of other dimensions; torch's is its own FlashAttention,
    for heads of 128 cuDNN's as well."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, tokens = 4, 4096
    flash, cudnn = ("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)
    sizes = ((32, 128, flash), (32, 128, cudnn), *((16, dim, flash) for dim in (64, 80, 96, 192, 256)))
    for (heads, dim, (name, backend)), causal in product(sizes, (True, False)):
        shape = (batch, tokens, heads, dim)
        q, k, v, dout = (torch.randn(shape, device=device, dtype=torch.float16) for _ in range(4))
        leaves = tuple(t.requires_grad_() for t in (q, k, v))
        out = tile_ops.flash_attention(q, k, v, causal=causal)
        with sdpa_kernel(backend):
            theirs = torch.nn.functional.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in leaves), is_causal=causal
            ).transpose(1, 2)
        yield Case(
            "attention_backward",
            f"attention_backward b{batch} s{tokens} h{heads} d{dim} {'causal' if causal else 'full'} beside torch's {name}",
            torch.float16,
            lambda out=out, leaves=leaves, dout=dout: torch.autograd.grad(out, leaves, dout, retain_graph=True),
            lambda out=theirs, leaves=leaves, dout=dout: torch.autograd.grad(out, leaves, dout, retain_graph=True),
            8.0 * q.nbytes,
            10.0 * batch * heads * tokens**2 * dim * (0.5 if causal else 1.0),
        )


#: Milliseconds of the best of mamba-ssm and TileLang 0.1.15 (batch, tokens); 64 heads of 64, 128 states, chunks of 256.
CHUNK_SCAN = {(1, 8192): 0.1458, (64, 1024): 1.1185, (64, 2048): 2.2495}
CHUNK_STATE = {(1, 8192): 0.0689, (64, 1024): 0.434, (64, 2048): 0.9588}


def chunk_scan(device: str) -> Iterator[Case]:
    """Mamba-2's outputs from the states before each chunk (CC2 to CC4); torch makes the weights, then multiplies."""
    for (batch, tokens), peer_ms in CHUNK_SCAN.items():
        cb, x, dt, s, C, states = chunks(batch, tokens, device)

        def peer(cb: Any = cb, x: Any = x, dt: Any = dt, s: Any = s, C: Any = C, states: Any = states) -> Any:
            chunks = s.shape[2:]
            weights = torch.exp(s[..., :, None] - s[..., None, :]).mul_(dt[..., None, :]).tril_()
            weights = weights.mul_(cb[:, :, 0, None].transpose(1, 2)).to(x.dtype)
            rows = C[:, :, 0].unflatten(1, chunks)
            y = torch.einsum("bhclm,bcmhp->bclhp", weights, x.unflatten(1, chunks))
            before = torch.einsum("bcln,bchpn->bclhp", rows, states)
            return (y + before * torch.exp(s).permute(0, 2, 3, 1)[..., None]).to(x.dtype).flatten(1, 2)

        yield Case(
            "chunk_scan",
            f"chunk_scan b{batch} s{tokens}",
            torch.float16,
            lambda cb=cb, x=x, dt=dt, s=s, C=C, states=states: tile_ops.chunk_scan(cb, x, dt, s, C, states),
            peer,
            float(sum(t.nbytes for t in (cb, x, x, dt, s, C, states))),
            x.numel() * (256.0 + 2 * 128),
            recorded={"best of mamba-ssm and TileLang*": peer_ms / 1e3},
        )


def chunk_state(device: str) -> Iterator[Case]:
    """Mamba-2's states of chunks (CT2 to CT4), in float16 and float32."""
    for ((batch, tokens), peer_ms), dtype in product(CHUNK_STATE.items(), (torch.float16, torch.float32)):
        _, x, dt, s, B, _ = chunks(batch, tokens, device)

        def peer(x: Any = x, dt: Any = dt, s: Any = s, B: Any = B, dtype: Any = dtype) -> Any:
            weights = (torch.exp(s[..., -1:] - s) * dt).permute(0, 2, 3, 1).to(x.dtype)
            weighted = x.unflatten(1, s.shape[2:]) * weights[..., None]
            return torch.einsum("bclhp,bcln->bchpn", weighted, B[:, :, 0].unflatten(1, s.shape[2:])).to(dtype)

        made = batch * tokens // 256 * 64 * 64 * 128
        yield Case(
            "chunk_state",
            f"chunk_state b{batch} s{tokens} to {str(dtype).removeprefix('torch.')}",
            torch.float16,
            lambda x=x, dt=dt, s=s, B=B, dtype=dtype: tile_ops.chunk_state(B, x, dt, s, out_dtype=dtype),
            peer,
            float(sum(t.nbytes for t in (x, dt, s, B)) + made * dtype.itemsize),
            2.0 * x.numel() * 128,
            recorded={"best of mamba-ssm and TileLang*": peer_ms / 1e3},
        )


def chunks(batch: int, tokens: int, device: str) -> tuple[torch.Tensor, ...]:
    """cb, x, dt, dA_cumsum, C (as B) and states of 64 heads of 64, one group of 128 states, chunks of 256."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=torch.float16)

    chunks = tokens // 256
    dt = torch.rand(batch, 64, chunks, 256, device=device) * 0.1
    s = torch.cumsum(-dt * (0.1 + torch.rand(64, device=device))[None, :, None, None], -1)
    cb = normal(batch, chunks, 1, 256, 256)
    return cb, normal(batch, tokens, 64, 64), dt, s, normal(batch, tokens, 1, 128), normal(batch, chunks, 64, 64, 128)


def mla_decode(device: str) -> Iterator[Case]:
    """One query for 128 heads against caches of latents (512 + 64); torch reads them as one tensor, without pages."""
    dim, rope, heads, page = 512, 64, 128, 64
    for batch, tokens in ((1, 8192), (16, 8192), (64, 4096), (128, 4096)):
        q = torch.randn(batch, heads, dim + rope, device=device, dtype=torch.float16)
        cache = torch.randn(batch * tokens // page, page, dim + rope, device=device, dtype=torch.float16)
        table = torch.arange(len(cache), device=device, dtype=torch.int32).view(batch, -1)
        lengths = torch.full((batch,), tokens, device=device, dtype=torch.int32)
        q_nope, q_rope = (part.contiguous() for part in q.split((dim, rope), -1))

        def peer(q: Any = q, cache: Any = cache) -> Any:
            keys = cache.view(q.shape[0], -1, q.shape[2])
            weights = torch.softmax((q @ keys.mT).float() * 192**-0.5, -1).to(q.dtype)
            return weights @ keys[..., :512]

        yield Case(
            "mla_decode",
            f"mla_decode b{batch} s{tokens}",
            torch.float16,
            lambda q_nope=q_nope, q_rope=q_rope, cache=cache, table=table, lengths=lengths: tile_ops.mla_decode(
                q_nope, q_rope, cache, table, lengths, scale=192**-0.5
            ),
            peer,
            float(cache.nbytes + q.nbytes + q_nope.nbytes),
            2.0 * batch * heads * tokens * (2 * dim + rope),
        )


def agree(case: Case) -> None:
    """Fails where ours is not what torch computes."""
    ours, theirs = case.ours(), case.torch()
    pairs = zip(ours, theirs) if isinstance(ours, tuple) else [(ours, theirs)]
    for found, expected in pairs:
        typical = expected.double().square().mean().sqrt()
        error = float(((found.double() - expected.double()).abs() / (expected.double().abs() + typical)).max())
        assert error <= TOLERANCE[case.rounds_to or case.dtype], f"{case.label}: ours and torch's differ by {error:.1e}"


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


def kernel_times(call: Callable[[], Any], flush: torch.Tensor, rounds: int) -> dict[str, float]:
    """Median microseconds of each of the call's kernels, in their order: the L2 cache is overwritten before the first one,
    and the chip sleeps until the host has launched them all. Two events read some 2.6 more than a kernel takes."""
    from tile_ops.kernel import Resolved

    launch, taken = Resolved.__call__, dict[str, list[float]]()
    seen: list[tuple[str, Any, Any]] = []

    def timed(kernel: Resolved, *arguments: Any) -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch(kernel, *arguments)
        end.record()
        seen.append((f"{len(seen) + 1} {kernel.spec.function}", start, end))

    Resolved.__call__ = timed  # type: ignore[method-assign]
    try:
        for _ in range(rounds):
            seen.clear()
            flush.zero_()
            torch.cuda._sleep(AHEAD)
            with torch.overrides.BaseTorchFunctionMode():  # under which no call goes by its implementation
                call()
            torch.cuda.synchronize()
            for name, start, end in seen:
                taken.setdefault(name, []).append(start.elapsed_time(end) * 1e3)
    finally:
        Resolved.__call__ = launch  # type: ignore[method-assign]
    return {name: statistics.median(times) for name, times in taken.items()}


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


def cpu_time(only: list[str] | None, rounds: int = 30) -> None:
    """Of each case the medians of this thread's CPU time, in turns, and their ratio."""
    from operators_cpu import FAMILIES

    os.environ["TILELANG_NUM_THREADS"] = "1"  # before the first launch
    torch.set_num_threads(1)
    keep_freed_memory()
    for case in chain(*(family("cpu") for family in (*FAMILIES, cases))):
        if only and case.operator not in only:
            continue
        agree(case)
        taken: dict[str, list[float]] = {"ours": [], "torch": []}
        for _ in range(rounds):
            for name, call in (("ours", case.ours), ("torch", case.torch)):
                taken[name].append(host_time(call, calls=2, rounds=1) / 1e3)
        ours, peer = (statistics.median(taken[name]) for name in ("ours", "torch"))
        print(f"{case.label}: {ours:.3f} ms, torch {peer:.3f} ms ({peer / ours:.2f})", flush=True)


def keep_freed_memory() -> None:
    """No pages go back to the system between calls: whether those of a large result did, and were faulted in again at eight
    times the cost of a norm, depended on what lay behind them in the heap, for ours and torch's alike."""
    if sys.platform == "linux":
        trim, top, mmap = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD (mallopt(3))
        for parameter, value in ((trim, 2**31 - 1), (top, 2**26), (mmap, 2**30)):
            ctypes.CDLL(None).mallopt(parameter, value)


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


def host() -> None:
    """Microseconds of this thread for a call on small tensors, ours and torch's; `recorded` by autograd."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.float32
    a, w = (torch.randn(shape, device=device, dtype=dtype) for shape in ((2, 64), (64, 64)))
    q = torch.randn(1, 16, 2, 64, device=device, dtype=dtype)
    functional = torch.nn.functional
    r, u = a.clone().requires_grad_(), w.clone().requires_grad_()
    out = a.new_empty(2, 64)
    state, dt, A = (torch.rand(shape, device=device) for shape in ((1, 4, 64, 128), (1, 4), 4))
    x, B, C = (torch.randn(shape, device=device, dtype=dtype) for shape in ((1, 4, 64), (1, 1, 128), (1, 1, 128)))

    def step() -> torch.Tensor:
        state.mul_(torch.exp(dt * -A)[..., None, None]).add_((dt[..., None] * x)[..., None] * B[:, :, None])
        return (state @ C[..., None].float())[..., 0]

    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "matmul": (lambda: tile_ops.matmul(a, w.T), lambda: a @ w.T),
        "matmul, out=": (lambda: tile_ops.matmul(a, w, out=out), lambda: torch.matmul(a, w, out=out)),
        "ssd_step": (lambda: tile_ops.ssd_step(state, x, dt, -A, B, C), step),
        "rms_norm": (lambda: tile_ops.rms_norm(a, w[0]), lambda: functional.rms_norm(a, (64,), w[0], 1e-6)),
        "layer_norm": (lambda: tile_ops.layer_norm(a, w[0], w[1]), lambda: functional.layer_norm(a, (64,), w[0], w[1])),
        "flash_attention": (
            lambda: tile_ops.flash_attention(q, q, q),
            lambda: functional.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3),
        ),
        "matmul, recorded": (lambda: tile_ops.matmul(r, u), lambda: r @ u),
        "rms_norm, recorded": (lambda: tile_ops.rms_norm(r, w[0]), lambda: functional.rms_norm(r, (64,), w[0], 1e-6)),
        "layer_norm, recorded": (lambda: tile_ops.layer_norm(r, w[0]), lambda: functional.layer_norm(r, (64,), w[0])),
        "softmax, recorded": (lambda: tile_ops.softmax(r), lambda: functional.softmax(r, -1)),
        "rms_norm by torch.ops": (
            lambda: torch.ops.tile_ops.rms_norm(a, w[0], 1e-6, None),
            lambda: functional.rms_norm(a, (64,), w[0], 1e-6),
        ),
    }
    for name, (ours, peer) in calls.items():
        print(f"{name}: {host_time(ours):.1f} us; torch {host_time(peer):.1f} us", flush=True)


def host_time(call: Callable[[], Any], calls: int = 500, rounds: int = 15) -> float:
    """The least of several rounds: what disturbs a thread only adds."""
    found = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.thread_time_ns()
        for _ in range(calls):
            call()
        found.append((time.thread_time_ns() - start) / calls / 1e3)
    return min(found)


def main() -> int:
    """On this machine's GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", help="an operator")
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel as well, by itself")
    parser.add_argument("--cpu-time", action="store_true", help="on the CPU, by the CPU time of one thread")
    parser.add_argument("--host", action="store_true", help="what a call costs the host")
    given = parser.parse_args()
    if given.host or given.cpu_time:
        host() if given.host else cpu_time(given.only)
        return 0
    sys.path.insert(0, str(Path(__file__).parent / "gpu"))
    from cases import PEAK_TFLOPS
    from measure import L2_BYTES, ROUNDS, times_ms

    flush = torch.empty(L2_BYTES, dtype=torch.uint8, device="cuda")
    copy = 2 * 8 * COPY_BYTES / times_ms({"copy": copying(8 * COPY_BYTES, "cuda")}, flush)["copy"] * 1e3
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copies {copy / 1e9:.0f} GB/s", flush=True)
    lines = []
    for case in cases("cuda"):
        if given.only and case.operator not in given.only:
            continue
        agree(case)
        times = {name: ms / 1e3 for name, ms in times_ms({"ours": case.ours, "torch": case.torch}, flush).items()}
        peak = PEAK_TFLOPS[case.rounds_to or str(case.dtype).removeprefix("torch.")] * 1e12 if case.flops else 1.0
        lines.append(line(case, times, copy, peak))
        others = "".join(f", {name} {t * 1e3:.4f} ms ({t / times['ours']:.2f})" for name, t in case.recorded.items())
        print(
            f"{case.label}: {times['ours'] * 1e3:.4f} ms, torch {times['torch'] * 1e3:.4f} ms "
            f"({lines[-1]['ratio']:.2f}){others}; {lines[-1]['of bound']:.2f} of the bound by {lines[-1]['bound by']}",
            flush=True,
        )
        if given.kernels:
            lines[-1]["kernels, us"] = alone = kernel_times(case.ours, flush, ROUNDS)
            print("    " + ", ".join(f"{name} {us:.1f} us" for name, us in alone.items()), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "lines": lines}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
