"""Calls of every operator with their references: what any installation, on any device, must be able to do.

`calls(device, kind, arch)` is used by the test that compares plans with what is shipped, and by installed.py, which runs where
nothing but the wheels and torch is installed. An operator that is public and has no call here fails test_calls.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

import tile_ops
from tile_ops.attention import reference as attention
from tile_ops.attention_backward import reference as attention_backward
from tile_ops.attention_decode import reference as attention_decode
from tile_ops.dequantize import reference as dequantize
from tile_ops.dtypes import SHIPPED_DTYPES, name_of
from tile_ops.gemm import reference as gemm
from tile_ops.gemm.configs import SHIPPED_FLOAT8
from tile_ops.grouped_gemm import reference as grouped_gemm
from tile_ops.linear_attention import reference as linear
from tile_ops.mla import reference as mla
from tile_ops.normalization import reference as normalization
from tile_ops.state_space import reference as state_space

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Call:
    """`operator(*args, **kwargs)` must be within `tolerance` of `expected()`, tuples one by one."""

    name: str
    operator: Callable[..., Any]
    reference: Callable[..., Any]
    tolerance: float
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def expected(self) -> Any:
        """The reference for the same arguments, in float64 on the CPU."""
        kwargs = {name: on_cpu(value) for name, value in self.kwargs.items()}
        return self.reference(*map(on_cpu, self.args), **kwargs)


#: Public operators that autograd does not record, beside those that are gradients themselves.
WITHOUT_GRADIENT = (
    tile_ops.chunk_scan,
    tile_ops.chunk_state,
    tile_ops.flash_decode,
    tile_ops.mla_decode,
    tile_ops.ssd_step,
)


@dataclass(frozen=True)
class Training:
    """What a call gives and the gradients of its operands, for random gradients of what it gives."""

    call: Call

    @classmethod
    def of(cls, call: Call) -> Training | None:
        """None for what has no gradient: integers, scaled 8-bit floats, gradients; and for a large result of ReLU, in which some
        sums are so close to 0 that rounding decides on which side."""
        x = call.args[0]
        if call.operator in WITHOUT_GRADIENT or call.operator.__name__.endswith("_backward") or x.itemsize == 1:
            return None
        if call.kwargs.get("activation") == "relu" and x.shape[0] > 100:
            return None
        return cls(call)

    @property
    def name(self) -> str:
        return f"gradients of {self.call.name}"

    @property
    def tolerance(self) -> float:
        """What is rounded on the way there is rounded on the way back, too; gradients have the operands' type."""
        rounded = gemm.TOLERANCES[name_of(self.call.args[0].dtype)] if "out_dtype" in self.call.kwargs else 0.0
        return 2 * max(self.call.tolerance, rounded)

    def found(self) -> tuple[torch.Tensor, ...]:
        return self._gradients(self.call.operator, lambda x: x.detach().clone())

    def expected(self) -> tuple[torch.Tensor, ...]:
        return self._gradients(self.call.reference, lambda x: x.detach().cpu().double())

    def _gradients(self, function: Callable[..., Any], leaf: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        leaves = []

        def operand(name: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return on_cpu(value) if function is self.call.reference else value
            made = leaf(value)
            if not name.startswith(("scale", "zero")):
                leaves.append(made.requires_grad_())
            return made

        args = [operand("", value) for value in self.call.args]
        result = function(*args, **{name: operand(name, value) for name, value in self.call.kwargs.items()})
        result = result[0] if isinstance(result, tuple) else result
        generator = torch.Generator().manual_seed(1)
        dtype = self.call.kwargs.get("out_dtype", self.call.args[0].dtype)
        of_result = torch.randn(result.shape, generator=generator).to(dtype).to(result)
        return torch.autograd.grad(result, leaves, of_result, materialize_grads=True)


def on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


class Draw:
    """Random tensors on a device, the same on every machine. `kind` and `arch` are what the shipped kernels are for: cpu, cuda or
    hip, and "sm_90a"."""

    def __init__(self, device: str, kind: str, arch: str) -> None:
        self.device, self.kind, self.arch = device, kind, arch
        self.generator = torch.Generator().manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype).to(self.device)


def calls(device: str, kind: str, arch: str) -> Iterator[Call]:
    """All of them, operator by operator: tensors on `device`, element types and sizes that are shipped for `arch`."""
    draw = Draw(device, kind, arch)
    yield from dequant_matmul(draw)
    yield from flash_attention(draw)
    yield from attention_of_models(draw)
    yield from flash_attention_backward(draw)
    yield from flash_attention_varlen(draw)
    yield from flash_attention_varlen_backward(draw)
    yield from flash_decode(draw)
    yield from grouped_matmul(draw)
    yield from linear_attention(draw)
    yield from matmul(draw)
    yield from matmul_of_bytes(draw)
    yield from mla_decode(draw)
    yield from mla_prefill(draw)
    yield from rms_norm(draw)
    yield from layer_norm_and_softmax(draw)
    for dtype in SHIPPED_DTYPES[kind]:
        yield from state_space_model(draw, getattr(torch, dtype))


def flash_attention(draw: Draw) -> Iterator[Call]:
    shapes = [(1, 130, 130, 2, 2), (2, 1, 70, 4, 1), (1, 33, 200, 4, 2)]  # batch, tokens, keys, heads, heads_kv
    dtypes = HALVES if draw.kind != "cpu" else (torch.float32, torch.bfloat16)
    for dtype, dim, causal, (batch, tokens, keys, heads, heads_kv) in product(dtypes, (64, 128), (False, True), shapes):
        q = draw.normal(batch, tokens, heads, dim, dtype=dtype)
        k, v = (draw.normal(batch, keys, heads_kv, dim, dtype=dtype) for _ in "kv")
        yield Call(
            f"flash_attention {name_of(dtype)} {tuple(q.shape)} {keys} {heads_kv} {'causal' if causal else 'full'}",
            tile_ops.flash_attention,
            lambda *operands, return_lse, **options: attention.flash_attention(*operands, **options),
            attention.TOLERANCES[name_of(dtype)],
            (q, k, v),
            {"causal": causal, "return_lse": True},
        )


def attention_of_models(draw: Draw) -> Iterator[Call]:
    """A window (Mistral), sinks (gpt-oss), a cap of scores (Gemma 2), other head dimensions (vision models, Phi, Gemma): the last
    three on GPUs, as wheels for CPUs have no kernels of them."""
    kinds: list[tuple[int, dict[str, Any]]] = [(64, {"window": (20, 0)}), (128, {"window": (20, 0)})]
    if draw.kind != "cpu":
        sinks = draw.normal(4)
        kinds += [(64, {"sinks": sinks, "causal": True}), (64, {"sinks": sinks, "window": (20, 0)})]
        kinds += [
            (dim, {"softcap": 5.0, **mask}) for dim in (128, 256) for mask in ({"causal": True}, {"window": (20, 0)})
        ]
        kinds += [(dim, {"causal": causal}) for dim in (80, 96, 256) for causal in (False, True)]
    for dim, options in kinds:
        q = draw.normal(1, 100, 4, dim, dtype=torch.bfloat16)
        k, v = (draw.normal(1, 130, 2, dim, dtype=torch.bfloat16) for _ in "kv")
        yield Call(
            f"flash_attention {dim} {', '.join(options)}",
            tile_ops.flash_attention,
            lambda *operands, **options: attention.flash_attention(*operands, **options)[0],
            attention.TOLERANCES["bfloat16"],
            (q, k, v),
            options,
        )


def flash_attention_backward(draw: Draw) -> Iterator[Call]:
    def reference(dout: Any, q: Any, k: Any, v: Any, _out: Any, _lse: Any, **options: Any) -> tuple[Any, ...]:
        return attention_backward.flash_attention_backward(dout, q, k, v, **options)

    for dtype, dim in product(HALVES if draw.kind != "cpu" else (torch.float32,), (64, 128)):
        dout, q = (draw.normal(1, 70, 4, dim, dtype=dtype) for _ in range(2))
        k, v = (draw.normal(1, 90, 2, dim, dtype=dtype) for _ in "kv")
        out, lse = attention.flash_attention(q.cpu(), k.cpu(), v.cpu(), causal=True)
        yield Call(
            f"flash_attention_backward {name_of(dtype)} {dim}",
            tile_ops.flash_attention_backward,
            reference,
            attention_backward.TOLERANCES[name_of(dtype)],
            (dout, q, k, v, out.to(dtype).to(draw.device), lse.float().to(draw.device)),
            {"causal": True},
        )


def flash_attention_varlen_backward(draw: Draw) -> Iterator[Call]:
    lengths, keys = (3, 70, 0, 5), (20, 70, 4, 0)
    starts, key_starts = (torch.tensor([0, *n]).cumsum(0).int() for n in (lengths, keys))

    def reference(
        dout: Any, q: Any, k: Any, v: Any, _out: Any, _lse: Any, a: Any, b: Any, *_: Any, **options: Any
    ) -> Any:
        return attention_backward.flash_attention_varlen_backward(dout, q, k, v, a, b, **options)

    dtype = torch.float32 if draw.kind == "cpu" else torch.bfloat16
    for dim in (64, 128):
        dout, q = (draw.normal(sum(lengths), 2, dim, dtype=dtype) for _ in range(2))
        k, v = (draw.normal(sum(keys), 1, dim, dtype=dtype) for _ in "kv")
        rows = zip(*(part.cpu().split(n) for part, n in ((q, lengths), (k, keys), (v, keys))), strict=True)
        parts = [attention.flash_attention(*(part[None] for part in row), causal=True) for row in rows]
        out, lse = torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)
        results = (out.to(dtype).to(draw.device), lse.float().to(draw.device))
        begin = (starts.to(draw.device), key_starts.to(draw.device))
        yield Call(
            f"flash_attention_varlen_backward {name_of(dtype)} {dim}",
            tile_ops.flash_attention_varlen_backward,
            reference,
            attention_backward.TOLERANCES[name_of(dtype)],
            (dout, q, k, v, *results, *begin, max(lengths), max(keys)),
            {"causal": True},
        )


def flash_decode(draw: Draw) -> Iterator[Call]:
    table, lengths = torch.tensor([[2, 0, 4], [1, 3, 3]]).int(), torch.tensor([40, 0]).int()
    dtypes = HALVES if draw.kind != "cpu" else (torch.float32, torch.bfloat16)
    for dtype, dim, page, heads in product(dtypes, (64, 128, 256), (16, 32, 64, 128, 256), (2, 8)):
        q, (k, v) = draw.normal(2, heads, dim, dtype=dtype), (draw.normal(5, page, 2, dim, dtype=dtype) for _ in "kv")
        options: dict[str, Any] = {"sinks": draw.normal(heads)} if page == 32 else {}
        if draw.kind != "cpu" and dim > 64 and page == 16:
            options["softcap"] = 5.0
        yield Call(
            f"flash_decode {name_of(dtype)} {dim} {heads} heads, pages of {page}",
            tile_ops.flash_decode,
            lambda *operands, return_lse, **options: attention_decode.flash_decode(*operands, **options),
            attention_decode.TOLERANCES[name_of(dtype)],
            (q, k, v, table.to(draw.device), lengths.to(draw.device)),
            {"return_lse": True, **options},
        )


def flash_attention_varlen(draw: Draw) -> Iterator[Call]:
    lengths, keys, heads, heads_kv = (3, 70, 0, 5), (20, 70, 4, 0), 2, 1
    starts, key_starts = (torch.tensor([0, *n]).cumsum(0).int() for n in (lengths, keys))

    def reference(q: Any, k: Any, v: Any, *_: Any, causal: bool, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows = zip(*(part.split(n) for part, n in ((q, lengths), (k, keys), (v, keys))), strict=True)
        parts = [attention.flash_attention(*(part[None] for part in row), causal=causal) for row in rows]
        return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)

    dtypes = HALVES if draw.kind != "cpu" else (torch.float32, torch.bfloat16)
    for dtype, dim, causal in product(dtypes, (64, 128), (False, True)):
        q = draw.normal(sum(lengths), heads, dim, dtype=dtype)
        k, v = (draw.normal(sum(keys), heads_kv, dim, dtype=dtype) for _ in "kv")
        yield Call(
            f"flash_attention_varlen {name_of(dtype)} {dim} {'causal' if causal else 'full'}",
            tile_ops.flash_attention_varlen,
            reference,
            attention.TOLERANCES[name_of(dtype)],
            (q, k, v, starts.to(draw.device), key_starts.to(draw.device), max(lengths)),
            {"causal": causal, "return_lse": True},
        )


def grouped_matmul(draw: Draw) -> Iterator[Call]:
    sizes = torch.tensor([3, 0, 130, 20]).to(draw.device)
    for dtype, tokens in product(HALVES, (160, 1024)):
        x, weights = draw.normal(tokens, 64, dtype=dtype), draw.normal(4, 72, 64, dtype=dtype)
        yield Call(
            f"grouped_matmul {name_of(dtype)} {tokens}",
            tile_ops.grouped_matmul,
            grouped_gemm.grouped_matmul,
            grouped_gemm.TOLERANCES[name_of(dtype)],
            (x, weights.mT, sizes),
        )


def linear_attention(draw: Draw) -> Iterator[Call]:
    shapes = (None, (2,), (1, 100, 2), (1, 100, 2, 128))
    for dtype, shape in product(SHIPPED_DTYPES[draw.kind], shapes):
        q, k, v = (draw.normal(1, 100, 2, 128, dtype=getattr(torch, dtype)) for _ in range(3))
        decay = None if shape is None else -draw.normal(*shape).abs() / 8
        yield Call(
            f"linear_attention {dtype} {shape}",
            tile_ops.linear_attention,
            linear.linear_attention,
            linear.TOLERANCES[dtype],
            (q, k, v),
            {"decay": decay, "return_final_state": True},
        )


def matmul(draw: Draw) -> Iterator[Call]:
    for dtype, (m, n, k) in product((*HALVES, torch.float32), ((40, 72, 50), (33, 5, 7), (1024, 4096, 64))):
        a, weight = draw.normal(m, k, dtype=dtype), draw.normal(n, k, dtype=dtype)
        for b, how in ((weight.mT, "transposed"), (weight.mT.contiguous(), "plain")):
            tolerance = gemm.TOLERANCES[name_of(dtype)]
            yield Call(f"matmul {name_of(dtype)} {m} {n} {k} {how}", tile_ops.matmul, gemm.matmul, tolerance, (a, b))
        rows = draw.normal(k, m, dtype=dtype).mT  # as the gradient of a layer's weight has them
        yield Call(
            f"matmul {name_of(dtype)} {m} {n} {k} by columns", tile_ops.matmul, gemm.matmul, tolerance, (rows, b)
        )
        for activation in (None, "relu", "gelu", "silu"):  # a layer, as torch.nn.Linear keeps its weight
            layer = {"bias": draw.normal(n, dtype=dtype), "activation": activation}
            name = f"matmul {name_of(dtype)} {m} {n} {k} bias, {activation}"
            yield Call(name, tile_ops.matmul, gemm.matmul, tolerance, (a, weight.mT), layer)
        if dtype != torch.float32:
            wide = {"out_dtype": torch.float32}
            name = f"matmul {name_of(dtype)} {m} {n} {k} to float32"
            tolerance = gemm.TOLERANCES["float32"]
            yield Call(
                name, tile_ops.matmul, lambda a, b, out_dtype: gemm.matmul(a, b), tolerance, (a, weight.mT), wide
            )


def matmul_of_bytes(draw: Draw) -> Iterator[Call]:
    """Integers, and 8-bit floats with a scale for the tensor, for each row and column, for each block of 128."""
    for m, n, k in ((40, 256, 384), (1024, 4096, 256)):
        a, weight = ((16 * draw.normal(*shape)).round().clamp(-128, 127).to(torch.int8) for shape in ((m, k), (n, k)))
        yield Call(f"matmul int8 {m} {n} {k}", tile_ops.matmul, gemm.matmul, 1e-6, (a, weight.mT))
        if draw.arch not in SHIPPED_FLOAT8:
            continue
        dtype = getattr(torch, SHIPPED_FLOAT8[draw.arch])
        a, b = draw.normal(m, k).to(dtype), draw.normal(n, k).to(dtype).mT
        for shape_a, shape_b in (((), ()), ((m,), (n,)), ((m, k // 128), (k // 128, n // 128))):
            scales = {"scale_a": draw.normal(*shape_a).abs(), "scale_b": draw.normal(*shape_b).abs()}
            name = f"matmul {SHIPPED_FLOAT8[draw.arch]} {m} {n} {k} scales {shape_a}"
            yield Call(name, tile_ops.matmul, gemm.matmul, gemm.TOLERANCES["bfloat16"], (a, b), scales)


def dequant_matmul(draw: Draw) -> Iterator[Call]:
    formats = (
        *(("uint4", 128, dtype) for dtype in HALVES),
        ("uint4", 64, torch.float16),
        ("uint4", 32, torch.bfloat16),
        ("uint4", -1, torch.float16),
        ("nf4", 64, torch.float16),
        ("int4", 128, torch.bfloat16),
        ("int4", 64, torch.bfloat16),
        ("int4", 32, torch.float16),
        ("int4", -1, torch.bfloat16),
        ("fp4", 64, torch.bfloat16),
        ("mxfp4", 32, torch.bfloat16),
    )
    shapes = [
        (1, 384, 1024),
        (2, 72, 4608),
        (4, 384, 2560),
        (7, 72, 512),
        (16, 384, 4096),
        (30, 384, 512),
        (50, 16384, 512),
        (100, 72, 1024),
        (1030, 72, 256),
    ]
    for (format, group, dtype), (m, n, k) in product(formats, shapes):
        rows = math.gcd(n, 384)  # quantizing takes longest of all that is drawn: large matrices repeat some rows
        w = tile_ops.quantize(draw.normal(rows, k, dtype=dtype), format=format, group_size=group)
        times = n // rows
        packed = w.packed.repeat(times, 1)
        scales, zeros = (x if x is None else x.repeat(1, times) for x in (w.scales, w.zeros))
        stored = {"scales": scales, "zeros": zeros, "format": format, "group_size": group}
        yield Call(
            f"dequant_matmul {format} by {group} {name_of(dtype)} {m} x {n} x {k}",
            tile_ops.dequant_matmul,
            dequantize.dequant_matmul,
            dequantize.TOLERANCES[name_of(dtype)],
            (draw.normal(m, k, dtype=dtype), packed),
            stored | ({"bias": draw.normal(n, dtype=dtype)} if n == 384 else {}),
        )
    for name, (m, k) in product(("int2", "int4"), ((1, 1024), (1, 8192), (20, 1024))):
        x = (16 * draw.normal(m, k)).round().clamp(-128, 127).to(torch.int8)
        w = tile_ops.quantize(draw.normal(72, k), format=name, group_size=-1)
        yield Call(
            f"dequant_matmul {name} int8 {m} x 72 x {k}",
            tile_ops.dequant_matmul,
            dequantize.dequant_matmul,
            1e-6,  # sums are exact
            (x, w.packed),
            {"scales": w.scales, "format": name, "group_size": -1, "bias": draw.normal(72)},
        )


def mla_decode(draw: Draw) -> Iterator[Call]:
    for dtype, lengths in product(HALVES, ((0, 70, 128), (1000,))):
        columns = -(-max(lengths) // 64)
        query, cache = draw.normal(len(lengths), 16, 576, dtype=dtype), draw.normal(16, 64, 576, dtype=dtype)
        table = torch.arange(len(lengths) * columns, dtype=torch.int32, device=draw.device).reshape(-1, columns)
        yield Call(
            f"mla_decode {name_of(dtype)} {lengths}",
            tile_ops.mla_decode,
            lambda *args, scale: mla.mla_decode(*args, scale=scale)[0],
            mla.TOLERANCES[name_of(dtype)],
            (query[..., :512], query[..., 512:], cache, table, torch.tensor(lengths).int().to(draw.device)),
            {"scale": 192**-0.5},
        )


def mla_prefill(draw: Draw) -> Iterator[Call]:
    for dtype in HALVES if draw.kind != "cpu" else (torch.float32, torch.bfloat16):
        q_nope, q_rope = draw.normal(1, 70, 2, 128, dtype=dtype), draw.normal(1, 70, 2, 64, dtype=dtype)
        k_nope, k_rope = draw.normal(1, 150, 2, 128, dtype=dtype), draw.normal(1, 150, 64, dtype=dtype)
        yield Call(
            f"mla_prefill {name_of(dtype)}",
            tile_ops.mla_prefill,
            lambda *operands: mla.mla_prefill(*operands)[0],
            attention.TOLERANCES[name_of(dtype)],
            (q_nope, q_rope, k_nope, k_rope, draw.normal(1, 150, 2, 128, dtype=dtype)),
        )


def rms_norm(draw: Draw) -> Iterator[Call]:
    shapes = [(3, 300), (70, 160), (2, 2, 4096), (2, 9000)]
    for dtype, activation, shape in product((*HALVES, torch.float32), (None, "silu"), shapes):
        x, weight = draw.normal(*shape, dtype=dtype), draw.normal(shape[-1], dtype=dtype)
        yield Call(
            f"rms_norm {name_of(dtype)} {shape} {activation}",
            tile_ops.rms_norm,
            normalization.rms_norm,
            normalization.TOLERANCES[name_of(dtype)],
            (x, weight),
            {"activation": activation},
        )


def state_space_model(draw: Draw, dtype: torch.dtype) -> Iterator[Call]:
    tolerance = state_space.TOLERANCES[name_of(dtype)]
    x, z = draw.normal(1, 512, 2, 64, dtype=dtype), draw.normal(1, 512, 2, 64, dtype=dtype)
    B, C = draw.normal(1, 512, 1, 128, dtype=dtype), draw.normal(1, 512, 1, 128, dtype=dtype)
    dt, A, D = draw.normal(1, 512, 2, dtype=dtype) - 1, -draw.normal(2).abs() - 0.1, draw.normal(2)
    for gate in (None, z):
        options = {"D": D, "z": gate, "dt_softplus": True}
        yield Call(
            f"ssd_scan {name_of(dtype)} {'plain' if gate is None else 'gated'}",
            tile_ops.ssd_scan,
            state_space.ssd_scan,
            tolerance,
            (x, dt, A, B, C),
            {**options, "return_final_states": True},
        )
        token = (x[:, 0], dt[:, 0], A, B[:, 0], C[:, 0])
        yield Call(
            f"ssd_step {name_of(dtype)} {'plain' if gate is None else 'gated'}",
            tile_ops.ssd_step,
            lambda *operands, **options: state_space.ssd_step(*operands, **options)[0],
            tolerance,
            (draw.normal(1, 2, 64, 128), *token),
            {**options, "z": None if gate is None else gate[:, 0]},
        )
    for heads in (24, 32):  # of one group, as models have them
        parts = draw.normal(1, 300, heads, 64, dtype=dtype), draw.normal(1, 300, heads, dtype=dtype) - 1
        B300, C300 = B[:, :300].contiguous(), C[:, :300].contiguous()
        yield Call(
            f"ssd_scan {name_of(dtype)} {heads} heads",
            tile_ops.ssd_scan,
            state_space.ssd_scan,
            tolerance,
            (*parts, -draw.normal(heads).abs() - 0.1, B300, C300),
            {
                "D": draw.normal(heads),
                "initial_states": draw.normal(1, heads, 64, 128),
                "dt_softplus": True,
                "return_final_states": True,
            },
        )
    steps = torch.nn.functional.softplus(dt.float()).transpose(1, 2).reshape(1, 2, 2, 256).contiguous()
    sums = torch.cumsum(steps * A[:, None, None], -1)
    before, cb = draw.normal(1, 2, 2, 64, 128, dtype=dtype), draw.normal(1, 2, 1, 256, 256, dtype=dtype)
    states = (B, x, steps, sums)
    yield Call(f"chunk_state {name_of(dtype)}", tile_ops.chunk_state, state_space.chunk_state, tolerance, states)
    outputs = (cb, x, steps, sums, C, before, D, z)
    yield Call(f"chunk_scan {name_of(dtype)}", tile_ops.chunk_scan, state_space.chunk_scan, tolerance, outputs)


def layer_norm_and_softmax(draw: Draw) -> Iterator[Call]:
    for dtype, shape in product((*HALVES, torch.float32), ((3, 300), (2, 2, 4096), (2, 9000))):
        x, tolerance = draw.normal(*shape, dtype=dtype), normalization.TOLERANCES[name_of(dtype)]
        parameters = tuple(draw.normal(shape[-1], dtype=dtype) for _ in range(2))
        name = f"{name_of(dtype)} {shape}"
        yield Call(f"layer_norm {name}", tile_ops.layer_norm, normalization.layer_norm, tolerance, (x, *parameters))
        yield Call(f"softmax {name}", tile_ops.softmax, normalization.softmax, tolerance, (x,))
