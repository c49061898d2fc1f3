"""`flash_attention` and `flash_attention_varlen` on torch tensors."""

from __future__ import annotations

from typing import Literal, overload

import torch

from tile_ops.again import offer
from tile_ops.autocast import floats
from tile_ops.kernel import still_shared_by, target_of, threads_of
from tile_ops.operands import refuse_other_types
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation

from .configs import plan, plan_packed
from .problem import AttentionProblem, PackedProblem, check_lengths, length, pair

FLASH_ATTENTION = Operator(
    "flash_attention",
    AttentionProblem.of,
    plan,
    lambda q, k, v, *, sinks=None, **_: target_of(q, k, v, sinks),
    lambda q, *_, **__: threads_of(q),
    autocast=floats,
)


@overload
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = ...,
    window: tuple[int, int] | None = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: torch.Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = ...,
    window: tuple[int, int] | None = ...,
    scale: float | None = ...,
    softcap: float | None = ...,
    sinks: torch.Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...
@FLASH_ATTENTION.public
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * q k^T) v for each head.

    q: (batch, tokens, heads, dim); k: (batch, keys, heads_kv, dim); v: (batch, keys, heads_kv, dim_v), heads a multiple of
    heads_kv (GQA, MQA), dim a multiple of 8 up to 256, dim_v one up to dim (192 and 128 in prompts of latent attention);
    float16, bfloat16 or float32, all of one type. Result: (batch, tokens, heads, dim_v), as q, contiguous; with
    `return_lse` also log(sum(exp(scores))), float32, (batch, heads, tokens).

    causal: the last query sees every key, the one before it all but the last, and so on, whatever the two lengths.
    window: (left, right), the keys that a query sees beside its own, -1 for all; with `causal` right is 0.
    scale: dim ** -0.5 if None. softcap: scores become softcap * tanh(score / softcap). sinks: (heads,), one more score
    for each head that takes its share of the weight and has no value.

    A query that sees no key gives 0 and lse -inf (with sinks, lse is the sink). Scores and sums in float32; weights are
    rounded to the operands' type before they meet v, the result is rounded once. Bit for bit the same from run to run
    and in any batch. A softcap a thousand times the scores costs four digits of float32, as its tanh is 1 less a quotient.
    On NVIDIA (sm_80 and newer) float32 operands are multiplied by three products of tf32 (within 2^-19 of theirs, 2^-22 in the
    root mean square), where an infinite one gives NaN, but for one query by more than 256 keys. These, and the keys of few
    queries, a GPU takes in runs, whose number depends on a sequence's sizes and the heads. Differentiable in q, k, v and sinks.
    Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao, FlashAttention-2, 2023, algorithm 1; runs: Dao et al., Flash-Decoding, 2023; sinks: Xiao et al., Streaming
    Language Models, 2023.
    """
    left, right = pair("flash_attention", window)
    out, lse = forward_operation(q, k, v, sinks, causal, left, right, scale, softcap)
    return (out, lse) if return_lse else out


@operation("flash_attention")
def forward_operation(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    call = FLASH_ATTENTION.call(q, k, v, causal=causal, window=(left, right), scale=scale, softcap=softcap, sinks=sinks)
    problem = call.problem
    out, lse = _results(q, v)
    if problem.keys == 0:  # nothing to see: the sums of nothing, without a launch
        lse.copy_(torch.full_like(lse, -torch.inf) if sinks is None else sinks[:, None])
        return out.zero_(), lse
    if out.numel():
        numbers: tuple[float, ...] = (problem.scale, problem.softcap or 0.0, problem.left, problem.right)
        scores = None if sinks is None else sinks.float().contiguous()
        if "split" in call or "join" in call:
            _by_runs(call, q.contiguous(), k.contiguous(), v.contiguous(), scores, out, lse)
            return out, lse
        role = "forward"
        if "staying" in call:
            role, numbers = "staying", (*numbers, call.numbers["launched"], call.numbers["section"])
        tensors = (q.contiguous(), k.contiguous(), v.contiguous(), scores, out, lse)
        call.run(role, *tensors, numbers=numbers, views=_rows_of_lse)
        offer(out, lse, still=still_shared_by(q, problem.threads))
    return out, lse


def _by_runs(
    call: Call[AttentionProblem],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """The keys in runs, which a second kernel joins: of one query as in decoding, of few by the tiles of many."""
    problem, known = call.problem, call.numbers
    numbers: tuple[float, ...] = (problem.scale, problem.softcap or 0.0, problem.left)
    if "split" in call:
        runs = (problem.batch, known["splits"], problem.heads)
        parts, sums = lse.new_empty((*runs, problem.dim)), lse.new_empty(runs)
        numbers = (*numbers, problem.heads // problem.heads_kv, known["blocks"])
        call.run("split", q, k, v, parts, sums, numbers=numbers, views=lambda q, *rest: (q[:, 0], *rest))
        call.run("combine", parts, sums, sinks, out, lse, views=lambda *x: (*x[:3], x[3][:, 0], x[4][..., 0]))
    else:
        parts, sums = (lse.new_empty((known["runs"], *x.shape)) for x in (out, lse))
        numbers = (*numbers, problem.right)
        call.run("forward", q, k, v, None, parts, sums, numbers=numbers, views=_runs_as_sequences)
        call.run("join", parts, sums, sinks, out, lse)
    offer(out, lse, temporary=(parts, sums))


def _runs_as_sequences(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The last two tensors, (runs, batch, ...), as the kernel that computes runs takes them."""
    return *tensors[:-2], tensors[-2].flatten(0, 1), tensors[-1].view(-1)


def _rows_of_lse(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The last tensor as one row, as the kernels take it."""
    return *tensors[:-1], tensors[-1].view(-1)


def _results(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    batch, tokens, heads, _ = q.shape
    return q.new_empty((batch, tokens, heads, v.shape[3])), q.new_empty((batch, heads, tokens), dtype=torch.float32)


@forward_operation.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _results(q, v)


forward_operation.register_autocast()


FLASH_ATTENTION_VARLEN = Operator(
    "flash_attention_varlen",
    PackedProblem.of,
    plan_packed,
    lambda q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, *, sinks=None, **_: target_of(
        q, k, v, cu_seqlens_q, cu_seqlens_k, sinks
    ),
    autocast=floats,
)


@FLASH_ATTENTION_VARLEN.public
def flash_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    *,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """`flash_attention` of sequences of any lengths that lie one behind the other.

    q: (all tokens, heads, dim); k: (all keys, heads_kv, dim), v: (all keys, heads_kv, dim_v), as there. cu_seqlens_q and
    cu_seqlens_k: (sequences + 1,), ascending, from 0 to all tokens (keys): sequence i holds the rows cu_seqlens[i] up to
    cu_seqlens[i + 1], which may be none; int32 (int64 is converted), read on the device. max_seqlen_q: the length of the
    longest sequence of q, or more, an int (or a CPU's tensor of one). max_seqlen_k: the same of k, which gradients need: if
    None, max_seqlen_q where cu_seqlens_k is cu_seqlens_q itself, else the number of all keys, which costs blocks without work.
    Result: (all tokens, heads, dim_v); with `return_lse` also (heads, all tokens), float32.

    The other arguments, accumulation and rounding are those of `flash_attention`; masks count from each sequence's own end.
    A NaN or infinity in v of one sequence may turn results of the sequence before it into NaN. Lengths that do not go up
    to all rows, or a max_seqlen below the longest, are refused on a CPU; a GPU's are not read: rows without a sequence are
    left as they are. Differentiable in q, k, v and sinks. Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao, FlashAttention-2, 2023, algorithm 1, and its interface for variable lengths.
    """
    left, right = pair("flash_attention_varlen", window)
    max_seqlen_q = length("flash_attention_varlen", "max_seqlen_q", max_seqlen_q)
    if max_seqlen_k is None:
        try:
            longest = max_seqlen_q if cu_seqlens_k is cu_seqlens_q else len(k)
        except TypeError:
            refuse_other_types("flash_attention_varlen", flash_attention_varlen, (q, k, v))
            raise
    else:
        longest = length("flash_attention_varlen", "max_seqlen_k", max_seqlen_k)
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k)
    out, lse = packed_operation(*tensors, sinks, max_seqlen_q, longest, causal, left, right, scale, softcap)
    return (out, lse) if return_lse else out


@operation("flash_attention_varlen")
def packed_operation(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    sinks: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k)
    call = FLASH_ATTENTION_VARLEN.call(
        *tensors, max_seqlen_q, causal=causal, window=(left, right), scale=scale, softcap=softcap, sinks=sinks
    )
    check_lengths("cu_seqlens_q", cu_seqlens_q, len(q), max_seqlen_q)  # their values are new in each call
    check_lengths("cu_seqlens_k", cu_seqlens_k, len(k), max_seqlen_k)
    problem = call.problem.call
    out, lse = _packed_results(q, v)
    if not problem.keys:
        lse.copy_(torch.full_like(lse, -torch.inf) if sinks is None else sinks[:, None])
        return out.zero_(), lse
    if out.numel() and max_seqlen_q and call.problem.sequences:
        starts, key_starts = (x.to(torch.int32).contiguous() for x in (cu_seqlens_q, cu_seqlens_k))
        scores = None if sinks is None else sinks.float().contiguous()
        numbers = (max_seqlen_q, problem.scale, problem.softcap or 0.0, problem.left, problem.right)
        operands = (q.contiguous(), k.contiguous(), v.contiguous(), starts, key_starts, scores, out, lse)
        call.run("forward", *operands, numbers=numbers, views=_in_batch)
        if call.target.kind != "cpu":  # whose lengths are asked in each call
            offer(out, lse)
    return out, lse


def _in_batch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As the kernel takes packed sequences: a batch of one."""
    *rest, out, lse = others
    return q[None], k[None], v[None], *rest, out[None], lse.view(-1)


def _packed_results(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = q.new_empty((*q.shape[:2], v.shape[2]))
    return out, q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@packed_operation.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    sinks: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _packed_results(q, v)


packed_operation.register_autocast()
