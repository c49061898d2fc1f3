"""`tile_ops::ssd_scan_backward`, which autograd calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tile_ops.again import offer
from tile_ops.constants import constant, zeros_of
from tile_ops.kernel import target_of
from tile_ops.operator import Operator
from tile_ops.registration import operation
from tile_ops.state_space.problem import ScanProblem
from tile_ops.temporaries import Temporaries

from .configs import plan

SSD_SCAN_BACKWARD = Operator(
    "ssd_scan_backward",
    ScanProblem.of,
    plan,
    lambda *operands, chunk_size, dt_softplus, **others: target_of(*operands, *others.values()),
)


@operation("ssd_scan_backward")
def ssd_scan_backward(
    dy: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    dt_bias: Tensor | None,
    z: Tensor | None,
    initial_states: Tensor | None,
    cu_seqlens: Tensor | None,
    dfinal: Tensor | None,
    chunk_size: int,
    dt_softplus: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, dt, A, B, C, D, dt_bias, z and initial_states; empty where the operand is None.

    Each is of its operand's type. All sums are made in a fixed order: the result is the same, bit for bit, in every run.
    """
    options: dict[str, Any] = {"dt_bias": dt_bias, "dt_softplus": dt_softplus, "initial_states": initial_states}
    run = SSD_SCAN_BACKWARD.call(x, dt, A, B, C, chunk_size=chunk_size, D=D, z=z, cu_seqlens=cu_seqlens, **options)
    rest = (D, dt_bias, z, initial_states, cu_seqlens, dfinal, chunk_size, dt_softplus)
    dx, ddt, dA, dB, dC, dD, dbias, dz, dinitial = found = _fake(dy, x, dt, A, B, C, *rest)
    batch, seqlen, nheads, headdim = x.shape
    ngroups, dstate = B.shape[2:]
    sequences = batch if cu_seqlens is None else len(cu_seqlens) - 1
    if not seqlen or not batch or not nheads or not sequences:
        for gradient in found:
            gradient.zero_()
        if initial_states is not None and dfinal is not None:
            dinitial.copy_(dfinal)
        return found
    target_of(dy, dfinal, x)
    constants: list[Tensor] = []
    if dfinal is None:
        dfinal, constants = zeros_of((sequences, nheads, headdim, dstate), x.device)
    x, dt, B, C, dy = (t.contiguous() for t in (x, dt, B, C, dy))
    new = Temporaries(x)

    table, first, nchunks = new(0, 2, dtype=torch.int32), new(0, dtype=torch.int32), -(-seqlen // chunk_size)
    if cu_seqlens is not None:
        nchunks = (seqlen + sequences * (chunk_size - 1)) // chunk_size
        table, first = new(nchunks, 2, dtype=torch.int32), new(sequences + 1, dtype=torch.int32)
        run.run("table", cu_seqlens.to(torch.int32).contiguous(), first, table)
    per_token, per_group = (batch, nheads, nchunks, chunk_size), nheads // ngroups
    step, sums = new(*per_token), new(*per_token)
    decay = A.float().contiguous()
    if dt_bias is None:
        bias = constant(nheads, 0.0, torch.float32, x.device)
        constants.append(bias)
    else:
        bias = dt_bias.float().contiguous()
    skip = new(0) if D is None else D.float().contiguous()
    run.run("steps", dt, decay, bias, table, step, sums)

    def passed(role: str, states: Tensor, start: Tensor | None, far: Tensor) -> Tensor:
        """The states before chunks, or the gradients after them. `far`: what comes out at the far end."""
        beside = new(*states.shape, dtype=x.dtype)
        far = far.view(sequences, nheads, headdim * dstate)
        given = far[:0] if start is None else start.float().contiguous().view_as(far)
        shape = (batch, nchunks, nheads, headdim * dstate)
        run.run(role, states.view(shape), sums, first, given, beside.view(shape), far)
        return beside

    states = new(batch, nchunks, nheads * headdim, dstate)
    run.run("chunk_state", B, x.flatten(2), step, sums, table, states, numbers=(per_group,))
    before = passed("pass_states", states, initial_states, new(*dfinal.shape))
    if z is not None:
        u, du = new(*x.shape, dtype=x.dtype), new(*x.shape, dtype=x.dtype)
        cb = new(batch, nchunks, ngroups, chunk_size, chunk_size, dtype=x.dtype)
        run.run("products", C, B, table, cb)
        ungated = x.new_empty((batch, seqlen, 0))
        operands = (cb, x.flatten(2), step, sums, C, before, skip, ungated, table, u.flatten(2))
        run.run("chunk_scan", *operands, numbers=(per_group, 1.0))
        run.run("gate", *(t.reshape(-1) for t in (dy, u, z.contiguous())), du.view(-1), dz.view(-1))
        dy = du
    gradients = new(*states.shape)
    run.run("chunk_gradient", C, dy.flatten(2), step, sums, table, gradients, numbers=(per_group,))
    far = _float32(dinitial, new) if initial_states is not None else new(*dfinal.shape)
    after = passed("pass_gradients", gradients, dfinal, far)

    shape = (batch, nchunks, nheads, headdim, dstate)
    skipped, c_dots, b_dots = new(*per_token), new(*per_token), new(*per_token)
    inputs = (B, C, x, dy, step, sums, after.view(shape), skip, table)
    run.run("inputs", *inputs, dx, skipped, numbers=(per_group,))
    run.run("c_factors", dy, x, B, C, step, sums, before.view(shape), table, dC, c_dots, numbers=(per_group,))
    run.run("b_factors", x, dy, C, B, step, sums, after.view(shape), table, dB, b_dots, numbers=(per_group,))
    edge, partial = new(batch, nheads, nchunks), new(3, batch, nchunks, nheads)
    flat = (batch, nchunks, nheads, headdim * dstate)
    run.run("edges", after.view(flat), before.view(flat), states.view(flat), sums, edge)
    run.run("steps_backward", dt, decay, bias, step, c_dots, b_dots, skipped, edge, table, ddt, partial)
    totals = [_float32(gradient, new) for gradient in (dA, dbias, dD)]
    run.run("sum", partial.view(3, batch * nchunks, nheads), *totals)
    written = [
        (gradient, sum_) for gradient, sum_ in zip((dA, dbias, dD, dinitial), (*totals, far)) if gradient.numel()
    ]
    converted = [(gradient, sum_) for gradient, sum_ in written if gradient is not sum_]
    for gradient, sum_ in converted:
        gradient.copy_(sum_)
    if not converted:
        offer(*found, temporary=new.all, constants=constants)
    return found


def _float32(gradient: Tensor, new: Temporaries) -> Tensor:
    """Where kernels write it: itself if it is of float32."""
    return gradient if gradient.dtype == torch.float32 else new(*gradient.shape)


@ssd_scan_backward.register_fake
def _fake(
    dy: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    dt_bias: Tensor | None,
    z: Tensor | None,
    initial_states: Tensor | None,
    cu_seqlens: Tensor | None,
    dfinal: Tensor | None,
    chunk_size: int,
    dt_softplus: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    def like(operand: Tensor | None) -> Tensor:
        return x.new_empty(0) if operand is None else torch.empty_like(operand, memory_format=torch.contiguous_format)

    return like(x), like(dt), like(A), like(B), like(C), like(D), like(dt_bias), like(z), like(initial_states)
