"""`tile_ops::linear_attention_backward`, which autograd calls."""

from __future__ import annotations

import torch
from torch import Tensor

from tile_ops.again import hidden, offer
from tile_ops.constants import constant, zeros_of
from tile_ops.kernel import target_of
from tile_ops.linear_attention.problem import AttentionProblem
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation
from tile_ops.temporaries import Temporaries

from .configs import plan

LINEAR_ATTENTION_BACKWARD = Operator(
    "linear_attention_backward",
    AttentionProblem.of,
    plan,
    lambda *operands, **options: target_of(*operands, *options.values()),
)


@operation("linear_attention_backward")
def linear_attention_backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    dfinal: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, decay and initial_state; empty where the operand is None.

    do is as v, dfinal float32 as the last states. Each gradient is of its operand's type. All sums are made in a fixed order:
    the result is the same, bit for bit, in every run.
    """
    options = {"decay": decay, "initial_state": initial_state, "cu_seqlens": cu_seqlens}
    call = LINEAR_ATTENTION_BACKWARD.call(q, k, v, **options)
    *_, dinitial = found = _fake(do, q, k, v, decay, initial_state, cu_seqlens, dfinal, scale)
    sequences = len(v) if cu_seqlens is None else len(cu_seqlens) - 1
    if not v.numel() or not sequences:
        for gradient in found:
            gradient.zero_()
        if initial_state is not None and dfinal is not None:
            dinitial.copy_(dfinal)
        return found
    target_of(do, dfinal, v)
    constants: list[Tensor] = []
    if dfinal is None:
        dfinal, constants = zeros_of((sequences, *v.shape[2:], k.shape[3]), v.device)
    do, dfinal, q, k, v = (t.contiguous() for t in (do, dfinal, q, k, v))
    differentiate = _decay_per_channel if call.problem.decay == "channel" else _one_decay
    made = Temporaries(v)
    chunks = _chunks(call, v, cu_seqlens, made)
    if decay is None:
        decay = constant(v.shape[2], 0.0, torch.float32, v.device)
        constants.append(decay)
    direct = initial_state is not None and initial_state.dtype == torch.float32
    far = dinitial if direct else made(*dfinal.shape)
    differentiate(call, do, dfinal, q, k, v, decay, scale, initial_state, chunks, found, far, made)
    if direct or initial_state is None:
        offer(*found, temporary=made.all, constants=constants)
    else:
        dinitial.copy_(far)
    return found


def _chunks(
    call: Call[AttentionProblem], v: Tensor, cu_seqlens: Tensor | None, new: Temporaries
) -> tuple[int, Tensor, Tensor]:
    """How many, the table of their tokens and the first one of each sequence: empty unless sequences are packed."""
    seqlen, size = v.shape[1], call.problem.model.chunk_size
    if cu_seqlens is None:
        return -(-seqlen // size), v.new_empty((0, 2), dtype=torch.int32), v.new_empty(0, dtype=torch.int32)
    count = (seqlen + (len(cu_seqlens) - 1) * (size - 1)) // size
    table, first = new(count, 2, dtype=torch.int32), new(len(cu_seqlens), dtype=torch.int32)
    call.run("table", cu_seqlens.to(torch.int32).contiguous(), first, table)
    return count, table, first


def _one_decay(
    call: Call[AttentionProblem],
    do: Tensor,
    dfinal: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    scale: float,
    initial_state: Tensor | None,
    chunks: tuple[int, Tensor, Tensor],
    found: tuple[Tensor, ...],
    far: Tensor,
    new: Temporaries,
) -> None:
    """Fills all gradients but the last, and `far` with that of the states before the sequences."""
    dq, dk, dv, ddecay, _ = found
    (batch, seqlen, heads, dim_v), (heads_k, dim_k) = v.shape, q.shape[2:]
    (nchunks, table, first), shared = chunks, heads // heads_k
    gradient = new(*do.shape, dtype=do.dtype)
    call.run("scaled", do.view(-1), gradient.view(-1), numbers=(scale,))
    per_token = (batch, heads, nchunks, call.problem.model.chunk_size)
    step, sums = new(*per_token), new(*per_token)
    decays = decay.float().view(1, 1, -1) if decay.ndim == 1 else decay
    call.run("decays", decays.contiguous(), table, step, sums, numbers=(seqlen,))

    shape = (batch, nchunks, heads, dim_v, dim_k)
    rows, flat = (batch, nchunks, heads * dim_v, dim_k), (batch, nchunks, heads, dim_v * dim_k)

    def around(
        factor: Tensor, x: Tensor, roles: tuple[str, str], start: Tensor | None, far: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What chunks add to the state, or to its gradient; what is before chunks, or after them. `far`: what comes out at the
        far end."""
        states, beside = new(*shape), new(*shape, dtype=v.dtype)
        given = far[:0] if start is None else start.float().contiguous()
        call.run(roles[0], factor, x.flatten(2), step, sums, table, states.view(rows), numbers=(shared,))
        ends = (given.flatten(2), beside.view(flat), far.flatten(2))
        call.run(roles[1], states.view(flat), sums, first, *ends)
        return states, beside

    states, before = around(k, v, ("chunk_state", "pass_states"), initial_state, new(*dfinal.shape))
    _, after = around(q, gradient, ("chunk_gradient", "pass_gradients"), dfinal, far)

    skipped, q_dots, k_dots = new(*per_token), new(*per_token), new(*per_token)
    call.run("values", k, q, v, gradient, step, sums, after, new(0), table, dv, skipped, numbers=(shared,))
    call.run("queries", gradient, v, k, q, step, sums, before, table, dq, q_dots, numbers=(shared,))
    call.run("keys", v, gradient, q, k, step, sums, after, table, dk, k_dots, numbers=(shared,))
    if "edges" in call:
        edge = new(batch, heads, nchunks)
        call.run("edges", after.view(flat), before.view(flat), states.view(flat), sums, edge)
        by_chunk = new(batch, nchunks, heads) if decay.ndim == 1 else ddecay
        call.run("decays_backward", q_dots, k_dots, edge, table, by_chunk, numbers=(seqlen,))
        if decay.ndim == 1:
            direct = ddecay.dtype == torch.float32
            total = ddecay if direct else new(heads)
            call.run("sum", by_chunk.view(1, batch * nchunks, heads), total, new(0), new(0))
            if not direct:
                hidden()
                ddecay.copy_(total)


def _decay_per_channel(
    call: Call[AttentionProblem],
    do: Tensor,
    dfinal: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    scale: float,
    initial_state: Tensor | None,
    chunks: tuple[int, Tensor, Tensor],
    found: tuple[Tensor, ...],
    far: Tensor,
    new: Temporaries,
) -> None:
    """As `_one_decay`."""
    dq, dk, dv, ddecay, _ = found
    nchunks, table, first = chunks
    shape = (len(v), nchunks, *dfinal.shape[1:])
    sums, q_products, k_products = (new(*k.shape) for _ in range(3))
    call.run("sums", decay.contiguous(), table, sums, numbers=(nchunks,))

    def around(
        x: Tensor, factor: Tensor, roles: tuple[str, str], start: Tensor | None, scale: float, far: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As in `_one_decay`."""
        states, beside = new(*shape), new(*shape, dtype=v.dtype)
        given = far[:0] if start is None else start.float().contiguous()
        call.run(roles[0], x, factor, sums, table, states, numbers=(scale,))
        call.run(roles[1], states.flatten(3), sums, table, first, given.flatten(2), beside.flatten(3), far.flatten(2))
        return states, beside

    states, before = around(v, k, ("chunk_state", "pass_states"), initial_state, 1.0, new(*dfinal.shape))
    _, after = around(do, q, ("chunk_gradient", "pass_gradients"), dfinal, scale, far)
    call.run("queries", do, q, k, v, sums, before, table, dq, q_products, numbers=(scale,))
    call.run("keys_values", do, q, k, v, sums, after, table, dk, dv, k_products, numbers=(scale,))
    call.run("gates", q_products, k_products, sums, before, states, after, table, ddecay)


@linear_attention_backward.register_fake
def _fake(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    dfinal: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    def like(operand: Tensor | None) -> Tensor:
        return v.new_empty(0) if operand is None else torch.empty_like(operand, memory_format=torch.contiguous_format)

    return like(q), like(k), like(v), like(decay), like(initial_state)
