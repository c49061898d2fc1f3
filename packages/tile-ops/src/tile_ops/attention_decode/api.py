"""`flash_decode` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.again import offer
from tile_ops.attention.problem import pair
from tile_ops.autocast import floats
from tile_ops.kernel import target_of
from tile_ops.operator import Operator
from tile_ops.registration import operation

from .configs import plan
from .problem import DecodeProblem

FLASH_DECODE = Operator(
    "flash_decode",
    DecodeProblem.of,
    plan,
    lambda q, k_cache, v_cache, block_table, lengths, *, sinks=None, **_: target_of(
        q, k_cache, v_cache, block_table, lengths, sinks
    ),
    autocast=floats,
)


@FLASH_DECODE.public
def flash_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    splits: int | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of each sequence's newest token, over keys and values that lie in pages.

    q: (batch, heads, dim); k_cache, v_cache: (pages, page_size, heads_kv, dim), heads a multiple of heads_kv, dim a
    multiple of 8 up to 256, page_size 8, 16, 32 or a multiple of 64; float16, bfloat16 or float32, all of one type.
    block_table: (batch, pages of a sequence), the pages that hold a sequence's keys in order; lengths: (batch,), how many
    keys it has, the newest token's own among them, cut at what the table holds; int32 (int64 is converted), read on the
    device: what no page has that number is not noticed. Entries of the table
    past a sequence's length are not read for their pages' content, but must name a page. Result: as q, contiguous; with
    `return_lse` also log(sum(exp(scores))), float32, (batch, heads).

    window, scale, softcap, sinks: as in `flash_attention`; a window's right side does not matter. splits: into how many
    runs a sequence's keys are cut, for blocks that work beside each other; None for a choice by shapes.

    A sequence of length 0 gives 0 and lse -inf. Scores and sums in float32; weights are rounded to the operands' type
    before they meet v, the result is rounded once. Bit for bit the same from run to run; bit for bit the same in any
    batch only with `splits` given, as their number is chosen by the batch. No backward.
    Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao et al., Flash-Decoding, 2023; pages: Kwon et al., PagedAttention, 2023.
    """
    left, _ = pair("flash_decode", window)
    out, lse = _decode(q, k_cache, v_cache, block_table, lengths, sinks, left, scale, softcap, splits)
    return (out, lse) if return_lse else out


@operation("flash_decode")
def _decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    sinks: torch.Tensor | None,
    left: int,
    scale: float | None,
    softcap: float | None,
    splits: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = (q, k_cache, v_cache, block_table, lengths)
    options = {"scale": scale, "softcap": softcap, "sinks": sinks, "splits": splits}
    call = FLASH_DECODE.call(*tensors, window=(left, 0), **options)
    problem = call.problem
    out, lse = _results(q)
    if not k_cache.numel() or not block_table.numel():  # no cache: nothing to see, without a launch
        lse.copy_(torch.full_like(lse, -torch.inf) if sinks is None else sinks.expand_as(lse))
        return out.zero_(), lse
    if out.numel():
        runs = (problem.batch, call.numbers["splits"], problem.heads)
        parts, sums = lse.new_empty((*runs, problem.dim)), lse.new_empty(runs)
        table, counts = (x.to(torch.int32).contiguous() for x in (block_table, lengths))
        scores = None if sinks is None else sinks.float().contiguous()
        numbers = (problem.scale, problem.softcap or 0.0, problem.left, problem.group, call.numbers["blocks"])
        operands = (q.contiguous(), k_cache.contiguous(), v_cache.contiguous())
        call.run("split", *operands, table, counts, parts, sums, numbers=numbers)
        call.run("combine", parts, sums, scores, out, lse)
        offer(out, lse, temporary=(parts, sums))
    return out, lse


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(q.shape[:2], dtype=torch.float32)


@_decode.register_fake
def _(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    sinks: torch.Tensor | None,
    left: int,
    scale: float | None,
    softcap: float | None,
    splits: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _results(q)


_decode.register_autocast()
