"""A call of linear attention as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongShape
from tile_ops.state_space.problem import Model, expect, lengths, rank

NAME = "linear_attention"


@dataclass(frozen=True)
class AttentionProblem:
    """`decay` is "none", "head", "token" or "channel"; `initial`: from given states, `packed`: several sequences."""

    model: Model
    decay: str
    decay_dtype: str
    initial: bool
    packed: bool

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        decay: torch.Tensor | None = None,
        scale: float | None = None,
        initial_state: torch.Tensor | None = None,
        cu_seqlens: torch.Tensor | None = None,
        return_final_state: bool = False,
    ) -> AttentionProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        rank(NAME, "v", v, "batch, seqlen, heads, dim_v")
        rank(NAME, "q", q, "batch, seqlen, heads_k, dim_k")
        batch, seqlen, heads, dim_v = v.shape
        heads_k, dim_k = q.shape[2:]
        model = Model.of(NAME, v.dtype, 64, (heads, dim_v, heads_k, dim_k))
        for what, tensor in (("q", q), ("k", k)):
            expect(NAME, what, tensor, (batch, seqlen, heads_k, dim_k), v.dtype)
        kind = "none"
        if decay is not None:
            kinds = {(heads,): "head", (batch, seqlen, heads): "token", (batch, seqlen, heads, dim_k): "channel"}
            kind = kinds.get(tuple(decay.shape), "")
            if not kind:
                raise WrongShape(
                    f"{NAME}: decay has shape {tuple(decay.shape)}; expected one of {', '.join(map(str, kinds))}"
                )
            expect(NAME, "decay", decay, tuple(decay.shape), v.dtype, torch.float32)
        if kind == "channel" and heads != heads_k:
            raise WrongShape(f"{NAME}: {heads} heads of v and {heads_k} of q; a decay per channel needs equally many")
        sequences = batch if cu_seqlens is None else lengths(NAME, cu_seqlens, batch, seqlen)
        if initial_state is not None:
            floats = (torch.float32, torch.float16, torch.bfloat16)
            expect(NAME, "initial_state", initial_state, (sequences, heads, dim_v, dim_k), *floats)
        decay_dtype = "float32" if decay is None or kind == "head" else name_of(decay.dtype)
        return cls(model, kind, decay_dtype, initial_state is not None, cu_seqlens is not None)
