"""`flash_attention_backward` and its form for packed sequences on torch tensors, and what makes `flash_attention` and
`flash_attention_varlen` differentiable by them."""

from __future__ import annotations

from typing import Any

import torch

from tile_ops.again import offer
from tile_ops.attention.api import forward_operation, packed_operation
from tile_ops.attention.problem import AttentionProblem, length, pair
from tile_ops.constants import zeros
from tile_ops.kernel import still_shared_by, target_of, threads_of
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation, traced

from .configs import ROWS, plan, plan_packed
from .problem import AttentionBackwardProblem, PackedBackwardProblem

FLASH_ATTENTION_BACKWARD = Operator(
    "flash_attention_backward",
    AttentionBackwardProblem.of,
    plan,
    lambda dout, q, k, v, out, lse, *, dlse=None, sinks=None, **_: target_of(dout, q, k, v, out, lse, sinks, dlse),
    depends=lambda dout, *_, **__: threads_of(dout),
)


@FLASH_ATTENTION_BACKWARD.public
def flash_attention_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    dlse: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """dq, dk, dv and dsinks of `out, lse = flash_attention(q, k, v, ..., return_lse=True)`; what autograd calls.

    dout: as out, of the type of q; dlse: as lse, zeros if None; the other arguments as in the forward call. Results: as
    q, k, v and sinks (None without sinks), contiguous.

    Sums in float32; weights and their slopes are rounded to the operands' type before they are multiplied, each result
    is rounded once. float32 is multiplied as in `flash_attention`. Bit for bit the same from run to run, on a CPU with equally
    many threads: no atomics, scores are computed twice instead, or by one walk for a head. Where queries or keys, heads and
    batch leave most of a GPU idle, sums are those of runs of the others, added in order. Raises WrongShape, WrongDtype,
    WrongValue, WrongDevice.

    Source: Dao, FlashAttention-2, 2023, algorithm 2.
    """
    left, right = pair("flash_attention_backward", window)
    dq, dk, dv, dsinks = _backward(dout, q, k, v, out, lse, sinks, dlse, causal, left, right, scale, softcap)
    return dq, dk, dv, None if sinks is None else dsinks


@operation("flash_attention_backward")
def _backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor | None,
    dlse: torch.Tensor | None,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    options: dict[str, Any] = {"causal": causal, "window": (left, right), "scale": scale, "softcap": softcap}
    call = FLASH_ATTENTION_BACKWARD.call(dout, q, k, v, out, lse, dlse=dlse, sinks=sinks, **options)
    dq, dk, dv, dsinks = _results(q, k, v, sinks)
    problem = call.problem.attention
    if not q.numel() or not k.numel():  # nothing was seen
        return dq.zero_(), dk.zero_(), dv.zero_(), _unseen(dsinks, dlse, lse)
    rows = (problem.batch, problem.heads, -(-problem.tokens // ROWS) * ROWS)
    _launch(call, problem, dout, dlse, q, k, v, out, lse, sinks, (), rows, (dq, dk, dv, dsinks))
    return dq, dk, dv, dsinks


def _unseen(dsinks: torch.Tensor, dlse: torch.Tensor | None, lse: torch.Tensor) -> torch.Tensor:
    """Fills the gradient of sinks where no query sees a key: lse, (..., heads, tokens), is the sink itself."""
    if dlse is None or not dsinks.numel():
        return dsinks.zero_()
    slopes = dlse.masked_fill(lse.isinf(), 0.0).sum(-1)
    return dsinks.copy_(slopes.sum(0) if slopes.ndim > 1 else slopes)


def _launch(
    call: Call[Any],
    problem: AttentionProblem,
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor | None,
    packed: tuple[Any, ...],
    rows: tuple[int, int, int],
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Fills the results. `rows` is the shape of what is computed for them first; `packed` is (), or where sequences begin in q
    and in k and the lengths of their longest ones."""
    dq, dk, dv, dsinks = results
    base, delta = temporary = [lse.new_empty(rows), lse.new_empty(rows)]
    none = zeros(lse.numel(), lse.device) if dlse is None else None
    slope = none if none is not None else torch.zeros_like(lse) if dlse is None else dlse.contiguous()
    wide_dv = dv
    if problem.dim_v < problem.dim:  # the kernels know one dimension: zeros beside the values add nothing
        v, out, dout = (torch.nn.functional.pad(x, (0, problem.dim - problem.dim_v)) for x in (v, out, dout))
        wide_dv = torch.empty_like(v)
    q, k, v, dout = q.contiguous(), k.contiguous(), v.contiguous(), dout.contiguous()
    starts, longest, longest_keys = packed[:2], packed[2:3], packed[3:]
    numbers = (problem.scale, problem.softcap or 0.0, problem.left, problem.right)

    def in_batch(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As the kernels take them: packed sequences are a batch of one."""
        return tuple(x[None] if packed and x.ndim == 3 and x is not base and x is not delta else x for x in tensors)

    def by_rows(out: torch.Tensor, dout: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *starts, lse, slope, base, delta = others
        return *in_batch(out, dout), *starts, lse.view(-1), slope.view(-1)[: lse.numel()], base, delta

    first = (out.contiguous(), dout, *starts[:1], lse.contiguous(), slope, base, delta)
    call.run("prepare", *first, numbers=longest, views=by_rows)
    read = (q, k, v, dout, *starts, base, delta)
    if "together" in call:
        call.run("together", *read, dq, dk, wide_dv, numbers=numbers)
    else:
        (in_dq,), in_dkv = _parts(call, "query_runs", dq), _parts(call, "key_runs", dk, wide_dv)
        call.run("queries", *read, in_dq, numbers=(*longest, *numbers), views=in_batch)
        for role in _keys_and_values(call):
            call.run(role, *read, *in_dkv, numbers=(*longest_keys, *numbers), views=in_batch)
        for role, of_runs, whole in (
            ("add_queries", in_dq, dq),
            *(("add_keys", *x) for x in zip(in_dkv, (dk, wide_dv))),
        ):
            if of_runs is not whole:
                call.run(role, of_runs, whole, views=_by_runs)
                temporary.append(of_runs)
    found = dsinks if dsinks.dtype == torch.float32 else dsinks.float()
    if sinks is not None:
        call.run("sinks", sinks.float().contiguous(), base, delta, found)
    if wide_dv is dv and (found is dsinks or sinks is None):
        still = None if packed else still_shared_by(q, problem.threads)
        offer(*results, temporary=temporary, still=still, constants=() if none is None else (none,))
    if wide_dv is not dv:
        dv.copy_(wide_dv[..., : problem.dim_v])
    if sinks is not None and found is not dsinks:
        dsinks.copy_(found)


def _parts(call: Call[Any], runs: str, *results: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where the kernel writes: the results, or the parts of each that it computes in so many runs."""
    count = call.numbers.get(runs, 1)
    if count == 1:
        return results
    return tuple(x.new_empty((count * len(x), *x.shape[1:]), dtype=torch.float32) for x in results)


def _by_runs(parts: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return parts.view(len(parts) // len(whole), -1), whole.view(-1)


def _keys_and_values(call: Call[Any]) -> tuple[str, ...]:
    """The roles of the kernels that compute dK and dV."""
    return ("keys", "values") if "values" in call else ("keys",)


def _results(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return dq, dk, dv, q.new_empty(0) if sinks is None else torch.empty_like(sinks)


@_backward.register_fake
def _(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor | None,
    dlse: torch.Tensor | None,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _results(q, k, v, sinks)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, sinks, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, sinks, *output)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    q, k, v, sinks, out, lse = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    known = None if traced() else _known(dout, q, k, v, out, lse, sinks, dlse, *ctx.options)
    if known is None:
        known = _backward(dout, q, k, v, out, lse, sinks, dlse, *ctx.options)
    dq, dk, dv, dsinks = known
    return dq, dk, dv, None if sinks is None else dsinks, None, None, None, None, None


forward_operation.register_autograd(_differentiate, setup_context=_save)


FLASH_ATTENTION_VARLEN_BACKWARD = Operator(
    "flash_attention_varlen_backward",
    PackedBackwardProblem.of,
    plan_packed,
    lambda dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, *_, dlse=None, sinks=None, **__: target_of(
        dout, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, dlse, sinks
    ),
)


@FLASH_ATTENTION_VARLEN_BACKWARD.public
def flash_attention_varlen_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    dlse: torch.Tensor | None = None,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """dq, dk, dv and dsinks of `out, lse = flash_attention_varlen(q, k, v, ..., return_lse=True)`; what autograd calls.

    Shapes and sequences as there, max_seqlen_k the length of the longest sequence of k, or more; dout: as out, of the type
    of q; dlse: as lse, zeros if None. Results, accumulation, rounding, order of sums and errors are those of
    `flash_attention_backward`. A NaN or infinity in one sequence may turn gradients of the sequence before it into NaN.

    Source: Dao, FlashAttention-2, 2023, algorithm 2.
    """
    name = "flash_attention_varlen_backward"
    longest = (length(name, "max_seqlen_q", max_seqlen_q), length(name, "max_seqlen_k", max_seqlen_k))
    starts = (cu_seqlens_q, cu_seqlens_k, *longest)
    left, right = pair(name, window)
    options = (causal, left, right, scale, softcap)
    dq, dk, dv, dsinks = _packed_backward(dout, q, k, v, out, lse, *starts[:2], sinks, dlse, *starts[2:], *options)
    return dq, dk, dv, None if sinks is None else dsinks


@operation("flash_attention_varlen_backward")
def _packed_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    sinks: torch.Tensor | None,
    dlse: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    starts = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options: dict[str, Any] = {"causal": causal, "window": (left, right), "scale": scale, "softcap": softcap}
    call = FLASH_ATTENTION_VARLEN_BACKWARD.call(dout, q, k, v, out, lse, *starts, dlse=dlse, sinks=sinks, **options)
    dq, dk, dv, dsinks = _results(q, k, v, sinks)
    packed = call.problem.packed
    if not q.numel() or not max_seqlen_q:
        return dq.zero_(), dk.zero_(), dv.zero_(), dsinks.zero_()
    if not k.numel() or not max_seqlen_k:
        return dq.zero_(), dk.zero_(), dv.zero_(), _unseen(dsinks, dlse, lse)
    # Room for every sequence's rows up to a multiple of ROWS (`place` in kernels.py).
    rows = (1, packed.call.heads, (packed.call.tokens // ROWS + packed.sequences) * ROWS)
    begin = (cu_seqlens_q.to(torch.int32).contiguous(), cu_seqlens_k.to(torch.int32).contiguous())
    where, results = (*begin, max_seqlen_q, max_seqlen_k), (dq, dk, dv, dsinks)
    _launch(call, packed.call, dout, dlse, q, k, v, out, lse, sinks, where, rows, results)
    return dq, dk, dv, dsinks


@_packed_backward.register_fake
def _(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    sinks: torch.Tensor | None,
    dlse: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    left: int,
    right: int,
    scale: float | None,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _results(q, k, v, sinks)


def _save_packed(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, starts, key_starts, sinks, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, starts, key_starts, sinks, *output)
    ctx.set_materialize_grads(False)


def _differentiate_packed(
    ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, starts, key_starts, sinks, out, lse = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    operands = (dout, q, k, v, out, lse, starts, key_starts, sinks, dlse)
    known = None if traced() else _known_packed(*operands, *ctx.options)
    if known is None:
        known = _packed_backward(*operands, *ctx.options)
    dq, dk, dv, dsinks = known
    return (dq, dk, dv, None, None, None if sinks is None else dsinks, *(None,) * 7)


packed_operation.register_autograd(_differentiate_packed, setup_context=_save_packed)


# As in normalization_backward/api.py: without the functions of Python between.
_known = _backward.again.call
_backward.again.is_global(globals(), "_known")
_known_packed = _packed_backward.again.call
_packed_backward.again.is_global(globals(), "_known_packed")
