"""`flash_attention` on torch tensors."""

from __future__ import annotations

from typing import Literal, overload

import torch

from tile_ops.kernel import target_of
from tile_ops.operator import Operator

from .configs import plan
from .problem import AttentionProblem

FLASH_ATTENTION = Operator(
    "flash_attention",
    AttentionProblem.of,
    plan,
    lambda q, k, v, *, sinks=None, **_: target_of(q, k, v, sinks),
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

    q: (batch, tokens, heads, dim); k, v: (batch, keys, heads_kv, dim), heads a multiple of heads_kv (GQA, MQA), dim a
    multiple of 8 up to 256; float16, bfloat16 or float32, all of one type. Result: as q, contiguous; with `return_lse`
    also log(sum(exp(scores))), float32, (batch, heads, tokens).

    causal: the last query sees every key, the one before it all but the last, and so on, whatever the two lengths.
    window: (left, right), the keys that a query sees beside its own, -1 for all; with `causal` right is 0.
    scale: dim ** -0.5 if None. softcap: scores become softcap * tanh(score / softcap). sinks: (heads,), one more score
    for each head that takes its share of the weight and has no value.

    A query that sees no key gives 0 and lse -inf (with sinks, lse is the sink). Scores and sums in float32; weights are
    rounded to the operands' type before they meet v, the result is rounded once. Bit for bit the same from run to run
    and in any batch. Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao, FlashAttention-2, 2023, algorithm 1; sinks: Xiao et al., Streaming Language Models, 2023.
    """
    left, right = (-1, -1) if window is None else window
    out, lse = torch.ops.tile_ops.flash_attention(q, k, v, sinks, causal, left, right, scale, softcap)
    return (out, lse) if return_lse else out


@torch.library.custom_op("tile_ops::flash_attention", mutates_args=())
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
    problem = AttentionProblem.of(
        q, k, v, causal=causal, window=(left, right), scale=scale, softcap=softcap, sinks=sinks
    )
    target = target_of(q, k, v, sinks)
    out, lse = _results(q)
    if problem.keys == 0:  # nothing to see: the sums of nothing, without a launch
        lse.copy_(torch.full_like(lse, -torch.inf) if sinks is None else sinks[:, None])
        return out.zero_(), lse
    if out.numel():
        numbers = (problem.scale, problem.softcap or 0.0, problem.left, problem.right)
        scores = lse.new_zeros(1) if sinks is None else sinks.float().contiguous()
        chosen = FLASH_ATTENTION.choose(problem, target)
        chosen["forward"](q.contiguous(), k.contiguous(), v.contiguous(), scores, out, lse.view(-1), *numbers)
    return out, lse


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    batch, tokens, heads, _ = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty((batch, heads, tokens), dtype=torch.float32)


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
    return _results(q)


forward_operation.register_autocast("cuda", torch.float16)
forward_operation.register_autocast("cpu", torch.bfloat16)
