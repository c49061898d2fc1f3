"""Mamba-2 on torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tile_ops.again import offer
from tile_ops.autocast import only
from tile_ops.constants import constant
from tile_ops.kernel import target_of
from tile_ops.operator import Operator
from tile_ops.registration import operation
from tile_ops.state_space_backward import api as _gradients

from .configs import plan_chunk_scan, plan_chunk_state, plan_scan, plan_step
from .problem import ChunkScanProblem, ChunkStateProblem, ScanProblem, StepProblem, check_lengths

CHUNK_STATE = Operator(
    "chunk_state",
    ChunkStateProblem.of,
    plan_chunk_state,
    lambda B, x, dt, dA_cumsum, **_: target_of(B, x, dt, dA_cumsum),
    autocast=only("B", "x"),
)
CHUNK_SCAN = Operator(
    "chunk_scan",
    ChunkScanProblem.of,
    plan_chunk_scan,
    lambda cb, x, dt, dA_cumsum, C, states, D=None, z=None: target_of(cb, x, dt, dA_cumsum, C, states, D, z),
    autocast=only("cb", "x", "C", "states", "z"),
)
SSD_SCAN = Operator(
    "ssd_scan",
    ScanProblem.of,
    plan_scan,
    lambda *operands, **options: _target(*operands, **options),
    autocast=only("x", "B", "C", "z"),
)


SSD_STEP = Operator(
    "ssd_step",
    StepProblem.of,
    plan_step,
    lambda state, x, dt, A, B, C, *, D=None, z=None, dt_bias=None, **_: target_of(state, x, dt, A, B, C, D, z, dt_bias),
    autocast=only("x", "B", "C", "z"),
)


@CHUNK_STATE.public
def chunk_state(
    B: Tensor, x: Tensor, dt: Tensor, dA_cumsum: Tensor, *, out_dtype: torch.dtype = torch.float32
) -> Tensor:
    """What the tokens of each chunk add to the state: the sum over them of exp(s_end - s) dt x B^T, s = dA_cumsum.

    B: (batch, seqlen, ngroups, dstate), x: (batch, seqlen, nheads, headdim), both float16, bfloat16 or float32; dt,
    dA_cumsum: (batch, nheads, nchunks, chunk_size), float32, dt 0 past the end of the sequence; chunk_size 64, 128 or
    256. Result: (batch, nchunks, nheads, headdim, dstate) of `out_dtype`.

    x is weighted and rounded to its type, the products are summed in float32; those of float32 on NVIDIA as in
    `ssd_scan`. The result is the same, bit for bit, in every run and batch. No backward: `ssd_scan` has one. Raises
    WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao and Gu, Transformers are SSMs, 2024, section 6; argument order as in mamba_ssm.
    """
    B, x = _autocast(B, x)
    return _chunk_state(B, x, dt, dA_cumsum, out_dtype)


@CHUNK_SCAN.public
def chunk_scan(
    cb: Tensor,
    x: Tensor,
    dt: Tensor,
    dA_cumsum: Tensor,
    C: Tensor,
    states: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
) -> Tensor:
    """Outputs of all tokens from the state before each chunk and the tokens within it.

    y_l = exp(s_l) states C_l + sum over m <= l of cb[l, m] exp(s_l - s_m) dt_m x_m + D x_l, times silu(z_l) if given.

    cb: (batch, nchunks, ngroups, chunk_size, chunk_size), C_l . B_m of each chunk, read where m <= l; x, z: (batch,
    seqlen, nheads, headdim); dt, dA_cumsum: (batch, nheads, nchunks, chunk_size), float32; C: (batch, seqlen, ngroups,
    dstate); states: (batch, nchunks, nheads, headdim, dstate); D: (nheads,). cb, x, z, C, states are of one type,
    float16, bfloat16 or float32; dt is not negative, dA_cumsum does not increase within a chunk. Result: as x.

    The weights (with D on their diagonal) are rounded to that type, the products are summed in float32; those of float32
    on NVIDIA as in `ssd_scan`. The result is the same, bit for bit, in every run and batch. No backward: `ssd_scan` has
    one. Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao and Gu, Transformers are SSMs, 2024, section 6; argument order as in mamba_ssm.
    """
    cb, x, C, states = _autocast(cb, x, C, states)
    if z is not None:
        (z,) = _autocast(z)
    return _chunk_scan(cb, x, dt, dA_cumsum, C, states, D, z)


@SSD_SCAN.public
def ssd_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int = 256,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    initial_states: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    return_final_states: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The scan of Mamba-2: h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T, y_t = h_t C_t + D x_t, times silu(z_t) if given.

    x, z: (batch, seqlen, nheads, headdim); B, C: (batch, seqlen, ngroups, dstate), a group for nheads / ngroups heads;
    all float16, bfloat16 or float32. dt: (batch, seqlen, nheads), of that type or float32; A, D, dt_bias: (nheads,);
    initial_states: (batch, nheads, headdim, dstate). dt + dt_bias goes through softplus or, without it, max(., 0).
    headdim and dstate are multiples of 8 up to 256, chunk_size is 64, 128 or 256; A is not positive.

    `cu_seqlens`, int32 (int64 is converted) of shape (sequences + 1,), are cumulative lengths of sequences that lie one
    after the other in a batch of 1: each starts from its own state, (sequences, nheads, headdim, dstate). Lengths may be
    0.

    Result: y, as x; with `return_final_states` also the last states, float32 of shape (batch or sequences, nheads,
    headdim, dstate). Within a chunk products are summed in float32 from operands rounded to the type of x; from chunk
    to chunk the state stays in float32. On NVIDIA (sm_80 and newer) float32 operands are multiplied by three products of
    tf32, as `flash_attention` does. The result is the same, bit for bit, in every run, batch and packing.
    Differentiable in all operands. Sums of dt A within a chunk are float32: where they reach hundreds (long chunks, some
    steps of 1 and A below -10), tokens with small steps behind them lose digits, and gradients of dt and A have A times
    what rounding leaves; shorter chunks help.
    Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Dao and Gu, Transformers are SSMs, 2024, section 6; argument order as in mamba_ssm.
    """
    x, B, C = _autocast(x, B, C)
    if z is not None:
        (z,) = _autocast(z)
    operands = (x, dt, A, B, C, D, dt_bias, z, initial_states, cu_seqlens)
    y, final = _ssd_scan(*operands, chunk_size, dt_softplus)
    return (y, final) if return_final_states else y


@SSD_STEP.public
def ssd_step(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
) -> Tensor:
    """One token of `ssd_scan`, for decoding: state becomes exp(dt A) state + dt x B^T, in place; y = state C + D x.

    state: (batch, nheads, headdim, dstate), float32, contiguous; x, z: (batch, nheads, headdim); dt: (batch, nheads); B, C:
    (batch, ngroups, dstate); A, D, dt_bias: (nheads,). Types, dt_bias and softplus as in `ssd_scan`. Result: y, as x.

    All in float32, the result is rounded once; the state is read and written once. The result is the same, bit for bit, in
    every run and batch. No backward: `ssd_scan` has one. Raises WrongShape, WrongDtype, WrongStride, WrongDevice.

    Source: Dao and Gu, Transformers are SSMs, 2024, section 6.
    """
    x, B, C = _autocast(x, B, C)
    if z is not None:
        (z,) = _autocast(z)
    return _ssd_step(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus)


@operation("chunk_state")
def _chunk_state(B: Tensor, x: Tensor, dt: Tensor, dA_cumsum: Tensor, out_dtype: torch.dtype) -> Tensor:
    call = CHUNK_STATE.call(B, x, dt, dA_cumsum, out_dtype=out_dtype)
    states = _chunk_state_fake(B, x, dt, dA_cumsum, out_dtype)
    if states.numel():
        operands = (x.contiguous() for x in (B, x, dt, dA_cumsum))
        numbers = (call.problem.model.heads_per_group,)
        call.run("forward", *operands, _no_chunks(x), states, numbers=numbers, views=_state_views)
        offer(states)
    return states


def _state_views(B: Tensor, x: Tensor, dt: Tensor, sums: Tensor, table: Tensor, states: Tensor) -> tuple[Tensor, ...]:
    """As the kernel takes them."""
    return B, _flat(x), dt, sums, table, _rows(states)


@_chunk_state.register_fake
def _chunk_state_fake(B: Tensor, x: Tensor, dt: Tensor, dA_cumsum: Tensor, out_dtype: torch.dtype) -> Tensor:
    return x.new_empty((x.shape[0], dt.shape[2], *x.shape[2:], B.shape[3]), dtype=out_dtype)


@operation("chunk_scan")
def _chunk_scan(
    cb: Tensor, x: Tensor, dt: Tensor, dA_cumsum: Tensor, C: Tensor, states: Tensor, D: Tensor | None, z: Tensor | None
) -> Tensor:
    call = CHUNK_SCAN.call(cb, x, dt, dA_cumsum, C, states, D, z)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel():
        operands = [x.contiguous() for x in (cb, x, dt, dA_cumsum, C, states)]
        operands += (_skip(x, D), _gate(x, None) if z is None else z.contiguous(), _no_chunks(x), y)
        call.run("forward", *operands, numbers=(call.problem.model.heads_per_group, 1.0), views=_scan_views)
        offer(y)
    return y


def _scan_views(
    cb: Tensor,
    x: Tensor,
    dt: Tensor,
    sums: Tensor,
    C: Tensor,
    states: Tensor,
    D: Tensor,
    z: Tensor,
    table: Tensor,
    y: Tensor,
) -> tuple[Tensor, ...]:
    """As the kernel takes them."""
    return cb, _flat(x), dt, sums, C, _rows(states), D, _flat(z), table, _flat(y)


@_chunk_scan.register_fake
def _(
    cb: Tensor, x: Tensor, dt: Tensor, dA_cumsum: Tensor, C: Tensor, states: Tensor, D: Tensor | None, z: Tensor | None
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@operation("ssd_scan")
def _ssd_scan(
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
    chunk_size: int,
    dt_softplus: bool,
) -> tuple[Tensor, Tensor]:
    options: dict[str, Any] = {"dt_bias": dt_bias, "dt_softplus": dt_softplus, "initial_states": initial_states}
    chosen = SSD_SCAN.call(x, dt, A, B, C, chunk_size=chunk_size, D=D, z=z, cu_seqlens=cu_seqlens, **options)
    batch, seqlen, nheads, headdim = x.shape
    ngroups, dstate = B.shape[2:]
    y, final = _ssd_scan_fake(x, dt, A, B, C, D, dt_bias, z, initial_states, cu_seqlens, chunk_size, dt_softplus)
    if not final.numel():
        return y, final
    if not seqlen:
        return y, final.zero_() if initial_states is None else final.copy_(initial_states)

    x, B, C = _flat(x), B.contiguous(), C.contiguous()
    table, first, nchunks = _no_chunks(x), _no_chunks(x).view(-1), -(-seqlen // chunk_size)
    if cu_seqlens is not None:
        check_lengths("ssd_scan", cu_seqlens, seqlen)  # their values are new in each call
        nchunks = (seqlen + len(final) * (chunk_size - 1)) // chunk_size  # enough for any lengths
        table, first = (x.new_empty(shape, dtype=torch.int32) for shape in ((nchunks, 2), (len(final) + 1,)))
        chosen.run("table", cu_seqlens.to(torch.int32).contiguous(), first, table)
    step, sums = (x.new_empty((batch, nheads, nchunks, chunk_size), dtype=torch.float32) for _ in range(2))
    bias = constant(nheads, 0.0, torch.float32, A.device) if dt_bias is None else dt_bias.float().contiguous()
    chosen.run("steps", dt.contiguous(), A.float().contiguous(), bias, table, step, sums)

    states = x.new_empty((batch, nchunks, nheads * headdim, dstate), dtype=torch.float32)
    chosen.run("chunk_state", B, x, step, sums, table, states, numbers=(nheads // ngroups,))
    before = torch.empty_like(states, dtype=x.dtype)
    start = final[:0] if initial_states is None else initial_states.float().contiguous()
    size = (nheads, headdim * dstate)
    chunks, ends = (batch, nchunks, *size), (start.view(len(start), *size), final.view(len(final), *size))
    chosen.run("pass_states", states.view(chunks), sums, first, ends[0], before.view(chunks), ends[1])
    cb = x.new_empty((batch, nchunks, ngroups, chunk_size, chunk_size))
    chosen.run("products", C, B, table, cb)
    rest = (_skip(x, D), _gate(x, z), table, _flat(y))
    chosen.run("chunk_scan", cb, x, step, sums, C, before, *rest, numbers=(nheads // ngroups, 1.0))
    if cu_seqlens is None:  # whose values are asked in each call
        constants = (bias,) if dt_bias is None else ()
        offer(y, final, temporary=(step, sums, states, before, cb), constants=constants)
    return y, final


@_ssd_scan.register_fake
def _ssd_scan_fake(
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
    chunk_size: int,
    dt_softplus: bool,
) -> tuple[Tensor, Tensor]:
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    final = x.new_empty((sequences, *x.shape[2:], B.shape[3]), dtype=torch.float32)
    return torch.empty_like(x, memory_format=torch.contiguous_format), final


@operation("ssd_step", mutates=["state"])
def _ssd_step(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    dt_softplus: bool,
) -> Tensor:
    call = SSD_STEP.call(state, x, dt, A, B, C, D=D, z=z, dt_bias=dt_bias, dt_softplus=dt_softplus)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel():
        heads = A.shape[0]
        bias = constant(heads, 0.0, torch.float32, A.device) if dt_bias is None else dt_bias.float().contiguous()
        steps = (dt.contiguous(), A.float().contiguous(), bias)
        gate = x.new_empty((*x.shape[:2], 0)) if z is None else z.contiguous()
        factors = (B.contiguous(), C.contiguous(), _skip(x, D), gate)
        call.run("forward", state, x.contiguous(), *steps, *factors, y, numbers=(call.problem.model.heads_per_group,))
        offer(y, constants=(bias,) if dt_bias is None else ())
    return y


@_ssd_step.register_fake
def _(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    dt_softplus: bool,
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, dt, A, B, C, D, dt_bias, z, initial_states, cu_seqlens, chunk_size, dt_softplus = inputs
    ctx.save_for_backward(x, dt, A, B, C, D, dt_bias, z, initial_states, cu_seqlens)
    ctx.chunk_size, ctx.dt_softplus = chunk_size, dt_softplus
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, dfinal: Tensor | None) -> tuple[Tensor | None, ...]:
    *operands, cu_seqlens = ctx.saved_tensors
    dy = torch.zeros_like(operands[0]) if dy is None else dy
    found = _gradients.ssd_scan_backward(dy, *operands, cu_seqlens, dfinal, ctx.chunk_size, ctx.dt_softplus)
    return *(None if o is None else g for o, g in zip(operands, found)), None, None, None


_ssd_scan.register_autograd(_backward, setup_context=_save)


def _target(x, dt, A, B, C, *, D=None, z=None, dt_bias=None, initial_states=None, cu_seqlens=None, **_):  # type: ignore[no-untyped-def]
    return target_of(x, dt, A, B, C, D, z, dt_bias, initial_states, cu_seqlens)


def _flat(x: Tensor) -> Tensor:
    """(batch, seqlen, nheads, headdim) with the features of all heads in one row."""
    return x.contiguous().view(*x.shape[:2], -1) if x.ndim == 4 else x


def _rows(states: Tensor) -> Tensor:
    """(batch, nchunks, nheads, headdim, dstate) with the rows of all heads one below the other."""
    return states.contiguous().view(*states.shape[:2], -1, states.shape[-1])


def _skip(x: Tensor, D: Tensor | None) -> Tensor:
    return x.new_empty(0, dtype=torch.float32) if D is None else D.float().contiguous()


def _gate(x: Tensor, z: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:2], 0)) if z is None else _flat(z)


def _no_chunks(x: Tensor) -> Tensor:
    """In place of the table of chunks where sequences are not packed."""
    return x.new_empty((0, 2), dtype=torch.int32)


def _autocast(*factors: Tensor) -> list[Tensor]:
    """Factors of matrix products in the type that autocast asks for; steps and decays stay as they are."""
    if not all(isinstance(factor, Tensor) for factor in factors):
        return list(factors)  # the operator says which one is something else
    device = factors[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(factors)
    return [factor.to(torch.get_autocast_dtype(device)) for factor in factors]
