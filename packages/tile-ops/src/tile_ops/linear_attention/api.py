"""`linear_attention` on torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tile_ops.again import offer
from tile_ops.autocast import only
from tile_ops.constants import constant
from tile_ops.kernel import target_of
from tile_ops.linear_attention_backward import api as _gradients
from tile_ops.operands import refuse_other_types
from tile_ops.operator import Operator
from tile_ops.registration import operation
from tile_ops.state_space.problem import check_lengths

from .configs import plan
from .problem import AttentionProblem


def _target(q, k, v, *, decay=None, initial_state=None, cu_seqlens=None, **_):  # type: ignore[no-untyped-def]
    return target_of(q, k, v, decay, initial_state, cu_seqlens)


LINEAR_ATTENTION = Operator("linear_attention", AttentionProblem.of, plan, _target, autocast=only("q", "k", "v"))


@LINEAR_ATTENTION.public
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    decay: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    return_final_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Causal attention without softmax: S_t = exp(decay_t) S_{t-1} + v_t k_t^T, o_t = scale S_t q_t.

    q, k: (batch, seqlen, heads_k, dim_k), v: (batch, seqlen, heads, dim_v), heads a multiple of heads_k; all float16,
    bfloat16 or float32; dims multiples of 8 up to 256. `decay` is the logarithm of a decay, not positive, -inf for 0,
    of that type or float32: None for 1, (heads,) for retention, (batch, seqlen, heads) for a gate per token, (batch, seqlen,
    heads, dim_k) for gated linear attention (then heads_k = heads). scale: dim_k ** -0.5 unless given.

    `initial_state`: (batch, heads, dim_v, dim_k). `cu_seqlens`, int32 (int64 is converted) of shape (sequences + 1,), are
    cumulative lengths of sequences that lie one after the other in a batch of 1, each with its own state; lengths may be
    0.

    Result: o, as v; with `return_final_state` also the last states, float32 of shape (batch or sequences, heads, dim_v,
    dim_k). Products are summed in float32 from operands rounded to the type of v; the state stays in float32. On NVIDIA
    (sm_80 and newer) float32 operands are multiplied by three products of tf32, as `flash_attention` does, except with a
    decay for each channel. The result is the same, bit for bit, in every run, batch and packing. Gradients, of all operands
    and through the last states, are made in a fixed order, so that they are the same in every run.
    Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Katharopoulos et al. 2020 (plain), Sun et al. 2023 (retention), Yang et al. 2024 (gated), in the chunks of Dao
    and Gu 2024.
    """
    try:
        device = v.device.type
        scale = q.shape[-1] ** -0.5 if scale is None else scale
    except AttributeError:
        refuse_other_types("linear_attention", linear_attention, (q, k, v))
        raise
    if torch.is_autocast_enabled(device):
        q, k, v = (t.to(torch.get_autocast_dtype(device)) for t in (q, k, v))
    o, final = _linear_attention(q, k, v, decay, initial_state, cu_seqlens, scale)
    return (o, final) if return_final_state else o


@operation("linear_attention")
def _linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    run = LINEAR_ATTENTION.call(q, k, v, decay=decay, initial_state=initial_state, cu_seqlens=cu_seqlens)
    if cu_seqlens is not None:
        check_lengths(LINEAR_ATTENTION.name, cu_seqlens, v.shape[1])  # their values are new in each call
    problem = run.problem
    o, final = _fake(q, k, v, decay, initial_state, cu_seqlens, scale)
    batch, seqlen, heads, dim_v = v.shape
    heads_k, dim_k = q.shape[2:]
    if not final.numel():
        return o, final
    if not seqlen:
        return o, final.zero_() if initial_state is None else final.copy_(initial_state)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    start = final.new_empty((0, *final.shape[1:])) if initial_state is None else initial_state.float().contiguous()
    lengths = v.new_empty(0, dtype=torch.int32) if cu_seqlens is None else cu_seqlens.to(torch.int32).contiguous()
    if problem.decay == "channel":
        assert decay is not None
        run.run("gated", q, k, v, decay.contiguous(), start, lengths, o, final, numbers=(scale,))
        if cu_seqlens is None:  # whose values are asked in each call
            offer(o, final)
        return o, final

    size, sequences = problem.model.chunk_size, len(final)
    table, first, nchunks = v.new_empty((0, 2), dtype=torch.int32), lengths[:0], -(-seqlen // size)
    if cu_seqlens is not None:
        nchunks = (seqlen + sequences * (size - 1)) // size
        table, first = (v.new_empty(shape, dtype=torch.int32) for shape in ((nchunks, 2), (sequences + 1,)))
        run.run("table", lengths, first, table)
    step, sums = (v.new_empty((batch, heads, nchunks, size), dtype=torch.float32) for _ in range(2))
    none = constant(heads, 0.0, torch.float32, v.device)
    decays = none if decay is None else decay.float() if problem.decay == "head" else decay
    run.run("decays", decays.contiguous(), table, step, sums, numbers=(seqlen,), views=_decay_views)

    states = v.new_empty((batch, nchunks, heads, dim_v, dim_k), dtype=torch.float32)
    before = torch.empty_like(states, dtype=v.dtype)
    shared = (heads // heads_k,)
    run.run("chunk_state", k, v, step, sums, table, states, numbers=shared, views=_state_views)
    run.run("pass_states", states, sums, first, start, before, final, views=_pass_views)
    products = v.new_empty((batch, nchunks, heads_k, size, size))
    run.run("products", q, k, table, products)
    unused = (v.new_empty(0, dtype=torch.float32), v.new_empty((batch, seqlen, 0)))
    operands = (products, v, step, sums, q, before, *unused, table, o)
    run.run("chunk_scan", *operands, numbers=(*shared, scale), views=_scan_views)
    if cu_seqlens is None:  # whose values are asked in each call
        offer(o, final, temporary=(step, sums, states, before, products), constants=(none,))
    return o, final


def _decay_views(decay: Tensor, table: Tensor, step: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
    """As the kernel takes them, like those below."""
    return decay.view(1, 1, -1) if decay.ndim == 1 else decay, table, step, sums


def _state_views(k: Tensor, v: Tensor, step: Tensor, sums: Tensor, table: Tensor, states: Tensor) -> tuple[Tensor, ...]:
    return k, v.flatten(2), step, sums, table, states.flatten(2, 3)


def _pass_views(
    states: Tensor, sums: Tensor, first: Tensor, start: Tensor, before: Tensor, final: Tensor
) -> tuple[Tensor, ...]:
    return states.flatten(3), sums, first, start.flatten(2), before.flatten(3), final.flatten(2)


def _scan_views(
    products: Tensor, v: Tensor, step: Tensor, sums: Tensor, q: Tensor, before: Tensor, *rest: Tensor
) -> tuple[Tensor, ...]:
    *unused, table, o = rest
    return products, v.flatten(2), step, sums, q, before.flatten(2, 3), *unused, table, o.flatten(2)


@_linear_attention.register_fake
def _fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    sequences = v.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    final = v.new_empty((sequences, *v.shape[2:], q.shape[3]), dtype=torch.float32)
    return torch.empty_like(v, memory_format=torch.contiguous_format), final


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *operands, ctx.scale = inputs
    ctx.save_for_backward(*operands)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, do: Tensor | None, dfinal: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, decay, initial_state, cu_seqlens = ctx.saved_tensors
    do = torch.zeros_like(v) if do is None else do
    operands = (do, q, k, v, decay, initial_state, cu_seqlens, dfinal, ctx.scale)
    dq, dk, dv, ddecay, dinitial = _gradients.linear_attention_backward(*operands)
    return dq, dk, dv, None if decay is None else ddecay, None if initial_state is None else dinitial, None, None


_linear_attention.register_autograd(_backward, setup_context=_save)
