"""A call of attention's gradients as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.attention.problem import AttentionProblem, PackedProblem
from tile_ops.errors import WrongDtype, WrongShape


@dataclass(frozen=True)
class AttentionBackwardProblem:
    """The attention whose gradients are asked for."""

    attention: AttentionProblem

    @classmethod
    def of(
        cls,
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
    ) -> AttentionBackwardProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        attention = AttentionProblem.of(
            q, k, v, causal=causal, window=window, scale=scale, softcap=softcap, sinks=sinks
        )
        rows = (attention.batch, attention.heads, attention.tokens)
        check_results("flash_attention_backward", (*q.shape[:3], attention.dim_v), rows, q, dout, out, lse, dlse)
        return cls(attention)


@dataclass(frozen=True)
class PackedBackwardProblem:
    """The attention of packed sequences whose gradients are asked for."""

    packed: PackedProblem

    @classmethod
    def of(
        cls,
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
    ) -> PackedBackwardProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        starts = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q)
        options = {"causal": causal, "window": window, "scale": scale, "softcap": softcap, "sinks": sinks}
        packed = PackedProblem.of(q, k, v, *starts, max_seqlen_k=max_seqlen_k, **options)  # type: ignore[arg-type]
        shape, rows = (*q.shape[:2], packed.call.dim_v), (packed.call.heads, packed.call.tokens)
        check_results("flash_attention_varlen_backward", shape, rows, q, dout, out, lse, dlse)
        return cls(packed)


def check_results(
    name: str,
    shape: tuple[int, ...],
    rows: tuple[int, ...],
    q: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
) -> None:
    """Raises WrongShape, WrongDtype unless results of the forward call, and their gradients, are what it gives."""
    if dout.shape != shape or out.shape != shape:
        raise WrongShape(
            f"{name}: q has shape {tuple(q.shape)}, out {tuple(out.shape)}, dout {tuple(dout.shape)}; out and dout must "
            f"both be {shape}"
        )
    if dout.dtype != q.dtype or out.dtype != q.dtype:
        raise WrongDtype(
            f"{name}: q is {q.dtype}, out {out.dtype}, dout {dout.dtype}; all three must be the same: dout.to(q.dtype)"
        )
    for label, tensor in (("lse", lse), ("dlse", dlse)):
        if tensor is None:
            continue
        if tensor.shape != rows:
            raise WrongShape(
                f"{name}: {label} has shape {tuple(tensor.shape)}; ({'batch, ' if len(rows) > 2 else ''}heads, tokens) "
                f"is expected, {rows}: what the forward call returns with return_lse=True"
            )
        if tensor.dtype != torch.float32:
            raise WrongDtype(f"{name}: {label} is {tensor.dtype}; torch.float32 is expected")
