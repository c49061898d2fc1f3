"""`dequant_matmul` on torch tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from tile_ops.again import offer
from tile_ops.autocast import floats
from tile_ops.gemm import matmul
from tile_ops.gemm_pairs.configs import parts_shape
from tile_ops.kernel import KernelSpec, target_of, threads_of
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation

from .configs import plan
from .formats import FORMATS
from .gradients import backward, setup_context
from .operands import bias_or_none, empty_rows, no_zeros, values
from .problem import DequantProblem, result_dtype


def _autocast(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Packed bytes and zero points are no floats and stay, and so do scales and bias beside x in int8."""
    return {} if arguments["x"].dtype == torch.int8 else floats(arguments, dtype)


DEQUANT_MATMUL = Operator(
    "dequant_matmul",
    DequantProblem.of,
    plan,
    lambda x, weight, *, scales, zeros=None, bias=None, **_: target_of(x, weight, scales, zeros, bias),
    lambda x, *_, **__: threads_of(x),
    autocast=_autocast,
)


@DEQUANT_MATMUL.public
def dequant_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    format: str,
    group_size: int,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x @ W.T + bias with packed weights, W[n, k] = (value of the code - zero) * scale.

    x: (..., k) float16 or bfloat16, k a multiple of 32. weight: (n, k / per) uint8, contiguous: code i of a row lies in
    byte i // per, low bits first (`tile_ops.pack`). scales: (ceil(k / group_size), n), of x's type (mxfp4:
    float8_e8m0fnu), one for `group_size` neighbours of a row: 32, 64, ..., 1024, or -1 for whole rows. zeros: as scales,
    uint8, for unsigned formats. bias: (n,), of x's type. Result: (..., n), contiguous, of `out_dtype` (float16, bfloat16,
    float32; x's type if None).

    | format | values of a code |
    | --- | --- |
    | int4, int2, int1 | two's complement: -8..7, -2..1, -1..0 |
    | uint4, uint2, uint1 | 0..15, 0..3, 0..1, less the zero point |
    | nf4, bnb_fp4 | tables of bitsandbytes, up to 1 |
    | fp4, mxfp4 | e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; mxfp4 has group_size 32 |

    x may be int8 too, with int4, int2 or int1, group_size -1, k below 131072, scales and bias float32: then sums are exact,
    in int32, and the result is float32 unless `out_dtype` says otherwise.

    Products on matrix instructions, and those of more than eight tokens of bfloat16 on a CPU that multiplies pairs of it (six
    with AMX), round W to x's type; up to eight tokens of bfloat16 on such a CPU without AMX round what a code of a table stands
    for, before the scale; with AMX W beside many tokens of float16 is the sum of two of bfloat16, to 2^-17; others round nothing
    (`explain` tells which run). For 1024 tokens and more, but those, W is decoded before, by rows that take at most 128 MB, on a
    GPU twice that, on a CPU 8 MB. Few tokens on a CPU have zero points taken off the sums,
    and more of float16 where pairs are multiplied what holds a code as well: there an infinite x gives NaN, and a row of W
    whose codes all equal the zero point gives numbers near 0. Sums are in float32, the result is rounded once. Results repeat
    bit for bit; a token's result may depend on how many there are, as the kernel does. Empty tensors give an empty result, or
    the bias where k is 0. x and bias have gradients (weights that are frozen below adapters); that of x decodes all of W.
    Raises WrongShape, WrongDtype, WrongStride, WrongValue, WrongDevice.

    Sources: Frantar et al., GPTQ, 2022; Dettmers et al., QLoRA, 2023; OCP Microscaling Formats 1.0.
    """
    return _dequant_matmul(x, weight, scales, zeros, format, group_size, bias, out_dtype)


@operation("dequant_matmul", public=dequant_matmul)
def _dequant_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    format: str,
    group_size: int,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    call = DEQUANT_MATMUL.call(
        x, weight, scales=scales, zeros=zeros, format=format, group_size=group_size, bias=bias, out_dtype=out_dtype
    )
    problem = call.problem
    m, n = problem.m, problem.n
    out = x.new_empty((*x.shape[:-1], n), dtype=result_dtype(x, out_dtype))
    if not out.numel():
        return out
    if not problem.k:
        return out.zero_() if bias is None else out.copy_(bias.expand_as(out))
    if problem.dtype == "int8":
        bytes_of_x, packed = x.reshape(m, -1).contiguous(), weight
        if call["product"].spec.function == "one_int8":
            bytes_of_x, packed = _words(bytes_of_x).view(-1, FORMATS[format].per_byte), weight.view(torch.uint32)
        call["product"](bytes_of_x, packed, scales, bias_or_none(bias, torch.float32, x.device), out.view(m, n))
        return out
    codes = (scales, no_zeros(x.device) if zeros is None else zeros, values(format, x.device))
    rows = x.contiguous()
    if "panel" in call.numbers:
        flat = rows.view(m, problem.k)
        _multiply_panels(call, flat, weight, codes, bias, out.view(m, n))
        return out
    splits, temporary = call.numbers.get("splits", 1), []
    kind = next((kind for kind in ("columns", "vectors", "split") if kind in call), "rows")
    words = kind != "rows" or "deal" in call or call["product"].spec.function == "product_rounded"
    more: tuple[torch.Tensor, ...] = ()  # operands beside x
    if kind == "vectors":
        given = rows
        rows, sums = _empty_vectors(call.numbers, x, call["vectors"].spec)
        more = (sums,)
        call.run("vectors", given, rows, sums, views=lambda x, *ys: (x.view(m, -1), *ys))
        temporary += [rows, sums]
    elif kind == "columns":
        given = rows
        rows, *rest = _empty_columns(call.numbers, x, problem.k // weight.view(torch.uint32).shape[1], problem)
        more, kind = tuple(rest), "pairs" if rest else kind
        call.run("columns", given, rows, *more, views=lambda x, *ys: (x.view(m, -1), *ys))
        temporary += [rows, *more]
    elif kind == "split":
        given = rows
        rows = x.new_empty(parts_shape(1, m, problem.k, call.numbers["codes"]), dtype=torch.bfloat16)
        call.run("split", given, rows, views=lambda x, parts: (x.view(1, m, -1), parts))
        temporary.append(rows)
    elif "deal" in call:
        dealt = torch.empty_like(rows)
        call.run("deal", rows, dealt, views=_dealt)
        rows = dealt
        temporary.append(rows)
    views = partial(_product_views, kind, words, m)
    if splits == 1:
        call.run("product", rows, *more, weight, *codes, bias_or_none(bias, x.dtype, x.device), out, views=views)
    else:
        sums = x.new_empty((splits, m, n), dtype=torch.float32)
        call.run("product", rows, weight, *codes, bias_or_none(None, x.dtype, x.device), sums, views=views)
        added = bias_or_none(bias, x.dtype, x.device)
        call.run("sum", sums, added, out, views=lambda sums, bias, out: (sums, bias, out.view(m, n)))
        temporary.append(sums)
    offer(out, temporary=temporary, constants=codes[1:])
    return out


def _empty_columns(
    numbers: dict[str, int], x: torch.Tensor, per: int, problem: DequantProblem
) -> tuple[torch.Tensor, ...]:
    """What `columns` makes of x for weights of `per` codes to a word: columns of float32, or of pairs, with their sums."""
    steps = -(-problem.k // (per * numbers["words"]))
    if "span" not in numbers:
        return (x.new_empty((steps, per, numbers["words"], problem.m), dtype=torch.float32),)
    span, tokens = numbers["span"], numbers["tokens"]
    rows, blocks = steps * (numbers["words"] // span), -(-problem.m // tokens)
    pairs = x.new_empty((rows, per // 2, span, 2, blocks, 2, tokens), dtype=torch.bfloat16)
    return pairs, x.new_empty((rows, blocks, tokens), dtype=torch.float32)


def _empty_vectors(numbers: dict[str, int], x: torch.Tensor, spec: KernelSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """What `vectors` makes of x: vectors of numbers or pairs, and sums of x for each word, if they are needed."""
    vectors, places, tokens, parts, lanes = (
        numbers[name] for name in ("vectors", "places", "tokens", "parts", "lanes")
    )
    held = torch.uint32 if dict(spec.arguments)["pairs"] else torch.float32
    those = x.new_empty((vectors, places, tokens, parts, lanes), dtype=held)
    return those, x.new_empty((numbers["sums"], tokens, lanes), dtype=torch.float32)


def _product_views(kind: str, words: bool, m: int, rows: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As `product` takes them: "rows" as a matrix; "columns", (steps, columns of a step, m), or those of "pairs" beside their
    sums; "vectors" and "split" as they are; codes as words or bytes; the result, or its parts, (parts, m, n)."""
    *more, weight, scales, zeros, table, bias, out = rest
    if kind == "rows":
        rows = rows.view(-1, rows.shape[-1])
    elif kind in ("columns", "pairs"):
        rows = rows.flatten(1, 2) if kind == "columns" else rows.flatten(4).flatten(1, 3)
    codes = (weight.view(torch.uint32) if words else weight, scales, zeros, table, bias)
    return rows, *more, *codes, out.view(-1, m, out.shape[-1])


def _words(x: torch.Tensor) -> torch.Tensor:
    """Bytes, or pairs of halves, as int32, copied if they begin in the middle of one."""
    return (x.clone() if x.storage_offset() * x.element_size() % 4 else x).view(torch.int32)


def _dealt(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `deal` takes them: it writes x to y with the columns in the order in which `product` finds codes."""
    k = x.shape[-1]
    return _words(x).view(torch.uint32).view(-1, k // 8, 4), y.view(torch.uint32).view(-1, k // 32, 4, 4)


def _multiply_panels(
    call: Call[DequantProblem],
    x: torch.Tensor,
    weight: torch.Tensor,
    codes: tuple[torch.Tensor, ...],
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """out = x @ W.T + bias, by panels of rows of W that are decoded to x's type. codes: scales, zeros, values.

    On a GPU a panel is decoded beside the product of the one before: a product's last tiles leave multiprocessors idle.
    """
    decode, panel, words = call["decode"], call.numbers["panel"], weight.view(torch.uint32)
    n, k = len(weight), x.shape[1]
    if bias is not None and bias.dtype != out.dtype:
        bias = bias.float()
    beside = x.is_cuda and n > panel
    buffers = [empty_rows(x, min(panel, n), words, k, call.target) for _ in range(1 + beside)]
    decode(words, *codes, buffers[0], 0)
    for number, first in enumerate(range(0, n, panel)):
        some = buffers[number % len(buffers)][: n - first]
        read = torch.cuda.current_stream(x.device).record_event() if beside else None  # the other buffer has been
        span = slice(first, first + len(some))
        matmul(x, some.view(-1, k).mT, bias=None if bias is None else bias[span], out_dtype=out.dtype, out=out[:, span])
        following = buffers[(number + 1) % len(buffers)][: max(0, n - first - panel)]
        if len(following):
            with nullcontext() if read is None else _after(read, x.device):
                decode(words, *codes, following, first + panel)


@contextmanager
def _after(event: torch.cuda.Event, device: torch.device) -> Iterator[None]:
    """What is launched inside waits for nothing but `event`; what the current stream gets later waits for it."""
    current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_event(event)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


@_dequant_matmul.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    format: str,
    group_size: int,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=result_dtype(x, out_dtype))


_dequant_matmul.register_autocast(_autocast)
_dequant_matmul.register_autograd(backward, setup_context=setup_context)
