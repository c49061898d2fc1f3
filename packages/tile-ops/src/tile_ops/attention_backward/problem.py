"""A call of attention's gradients as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.attention.problem import AttentionProblem
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
        shape = (*q.shape[:3], attention.dim_v)
        if dout.shape != shape or out.shape != shape:
            raise WrongShape(
                f"flash_attention_backward: q has shape {tuple(q.shape)}, out {tuple(out.shape)}, dout "
                f"{tuple(dout.shape)}; out and dout must both be {shape}"
            )
        if dout.dtype != q.dtype or out.dtype != q.dtype:
            raise WrongDtype(
                f"flash_attention_backward: q is {q.dtype}, out {out.dtype}, dout {dout.dtype}; all three must be the "
                "same: dout.to(q.dtype)"
            )
        rows = (attention.batch, attention.heads, attention.tokens)
        for name, tensor in (("lse", lse), ("dlse", dlse)):
            if tensor is None:
                continue
            if tensor.shape != rows:
                raise WrongShape(
                    f"flash_attention_backward: {name} has shape {tuple(tensor.shape)}; (batch, heads, tokens) is "
                    f"expected, {rows}: what flash_attention(..., return_lse=True) returns"
                )
            if tensor.dtype != torch.float32:
                raise WrongDtype(f"flash_attention_backward: {name} is {tensor.dtype}; torch.float32 is expected")
        return cls(attention)
