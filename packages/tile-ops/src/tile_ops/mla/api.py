"""`mla_decode` on torch tensors."""

from __future__ import annotations

import math

import torch

from tile_ops.again import offer
from tile_ops.autocast import floats
from tile_ops.kernel import still_shared_by, target_of, threads_of
from tile_ops.operator import Operator
from tile_ops.registration import operation

from .configs import plan
from .problem import DecodeProblem

MLA_DECODE = Operator(
    "mla_decode",
    DecodeProblem.of,
    plan,
    lambda q_nope, q_rope, cache, block_table, lengths, **_: target_of(q_nope, q_rope, cache, block_table, lengths),
    lambda q_nope, *_, **__: threads_of(q_nope),
    autocast=floats,
)


@MLA_DECODE.public
def mla_decode(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Multi-head latent attention of one query per head and sequence against a paged cache of latents.

    q_nope: (batch, heads, dim), the query's part without rotation, multiplied by W^UK; q_rope: (batch, heads, rope),
    its rotated part; cache: (pages, page, dim + rope) contiguous, a token's latent and then its rotated key;
    block_table: (batch, columns) int32, the pages of each sequence in order; lengths: (batch,) int32, tokens of each
    sequence, read on the device. Result: (batch, heads, dim) as q_nope, still in latent space (W^UV follows), and with
    `return_lse` the natural logarithm of the softmax's sum, (batch, heads) float32. All float16, all bfloat16 or all
    float32; dim, rope and page are multiples of 16 (512, 64 and 64 in DeepSeek's models).

    `scale` multiplies the scores; it belongs to the head's size before absorption (192 ** -0.5 for DeepSeek) and cannot
    be guessed. Scores, softmax and sums are float32; weights are rounded to the type for the second product, the result
    once. A sequence of length 0 gives 0 and -inf. Cache rows past a length may hold anything, NaN too; lengths past the
    table's end are cut there. Entries of block_table past a sequence's pages are not read.

    Deterministic: no atomics. Few sequences are cut into parts whose number follows from batch, heads and columns, on a CPU
    also from the number of threads, so that a result may differ in its last bits between batches of different sizes, never
    with its neighbours' values.
    No backward. Raises WrongShape, WrongDtype, WrongStride, WrongValue, WrongDevice.

    Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1; parts after Dao et al., Flash-Decoding, 2023.
    """
    out, lse = _mla_decode(q_nope, q_rope, cache, block_table, lengths, scale)
    return (out, lse) if return_lse else out


@operation("mla_decode")
def _mla_decode(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    call = MLA_DECODE.call(q_nope, q_rope, cache, block_table, lengths, scale=scale)
    problem = call.problem
    out, lse = _empty(q_nope)
    if not problem.has_keys:
        return out.zero_(), lse.fill_(-math.inf)
    if not out.numel():
        return out, lse
    parts = call.numbers["parts"]
    operands = (q_nope.contiguous(), q_rope.contiguous(), cache, block_table.contiguous(), lengths.contiguous())
    scale *= math.log2(math.e)
    still = still_shared_by(q_nope, problem.threads)
    if parts == 1:
        call.run("decode", *operands, out, lse, numbers=(scale,))
        offer(out, lse, still=still)
    else:
        means = lse.new_empty(problem.batch, parts, problem.heads, problem.dim)
        logs = lse.new_empty(problem.batch, parts, problem.heads)
        call.run("part", *operands, means, logs, numbers=(scale,))
        call.run("combine", means, logs, out, lse)
        offer(out, lse, temporary=(means, logs), still=still)
    return out, lse


@_mla_decode.register_fake
def _(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _empty(q_nope)


def _empty(q_nope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(q_nope, memory_format=torch.contiguous_format)
    return out, q_nope.new_empty(q_nope.shape[:2], dtype=torch.float32)


_mla_decode.register_autocast()
