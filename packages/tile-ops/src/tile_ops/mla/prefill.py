"""`mla_prefill`: prompts of latent attention, as the attention that they become."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from tile_ops.attention import flash_attention, flash_attention_varlen
from tile_ops.attention.configs import plan as plan_attention
from tile_ops.attention.configs import plan_packed
from tile_ops.attention.problem import (
    AttentionProblem,
    PackedProblem,
    check_dtypes,
    check_heads,
    check_values,
    factors,
    length,
    power_of_two,
    sides,
)
from tile_ops.autocast import converted, enabled, floats
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.kernel import Target, target_of, threads_of
from tile_ops.operands import refuse_other_types
from tile_ops.operator import Operator, Plan

NAME = "mla_prefill"


@dataclass(frozen=True)
class PrefillProblem:
    """The attention whose heads have the two parts of queries and keys one behind the other."""

    attention: AttentionProblem | PackedProblem

    @classmethod
    def of(
        cls,
        q_nope: torch.Tensor,
        q_rope: torch.Tensor,
        k_nope: torch.Tensor,
        k_rope: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool = True,
        scale: float | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
        return_lse: bool = False,
    ) -> PrefillProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        named = {"q_nope": q_nope, "q_rope": q_rope, "k_nope": k_nope, "k_rope": k_rope, "v": v}
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())
        if [tensor.ndim for tensor in named.values()] != [4, 4, 4, 3, 4]:
            raise WrongShape(
                f"{NAME}: {shapes}; expected q_nope and q_rope (batch, tokens, heads, ...), k_nope and v "
                "(batch, keys, heads, ...), k_rope (batch, keys, rope)"
            )
        batch, tokens, heads, nope = q_nope.shape
        keys, rope = k_rope.shape[1:]
        wanted = [(batch, tokens, heads, rope), (batch, keys, heads, nope), (batch, keys, rope), (batch, keys, heads)]
        if [tuple(x.shape) for x in (q_rope, k_nope, k_rope)] + [tuple(v.shape[:3])] != wanted:
            raise WrongShape(f"{NAME}: {shapes}; batch, heads, keys and the two dimensions must agree")
        if q_rope.dtype != q_nope.dtype or k_rope.dtype != k_nope.dtype:
            raise WrongDtype(
                f"{NAME}: q_rope is {q_rope.dtype}, k_rope {k_rope.dtype}; expected {q_nope.dtype} for all"
            )
        check_heads(NAME, heads, heads, nope + rope)
        check_values(NAME, nope + rope, v.shape[3])
        dtype = check_dtypes(NAME, q_nope, k_nope, v)
        left, right = sides(NAME, causal, None)
        scale, _ = factors(NAME, nope + rope, scale, None)
        shape = (batch, tokens, keys, heads, heads, nope + rope, v.shape[3])
        call = AttentionProblem(*shape, dtype, left, right, scale, None, False)
        if cu_seqlens is None:
            return cls(replace(call, threads=threads_of(q_nope)))
        if batch != 1 or keys != tokens or cu_seqlens.ndim != 1 or not len(cu_seqlens):
            raise WrongShape(
                f"{NAME}: {shapes}, cu_seqlens {tuple(cu_seqlens.shape)}; packed sequences lie in a batch of 1, with as "
                "many keys as tokens, and cu_seqlens is (sequences + 1,)"
            )
        longest = length(NAME, "max_seqlen", max_seqlen)
        return cls(PackedProblem(call, len(cu_seqlens) - 1, power_of_two(longest)))


def plan_prefill(problem: PrefillProblem, target: Target) -> Plan:
    """The attention's plan."""
    attention = problem.attention
    if isinstance(attention, PackedProblem):
        return plan_packed(attention, target)
    return plan_attention(attention, target)


MLA_PREFILL = Operator(
    NAME,
    PrefillProblem.of,
    plan_prefill,
    lambda q_nope, q_rope, k_nope, k_rope, v, *, cu_seqlens=None, **_: target_of(
        q_nope, q_rope, k_nope, k_rope, v, cu_seqlens
    ),
    autocast=floats,
)


@MLA_PREFILL.public
def mla_prefill(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k_nope: torch.Tensor,
    k_rope: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    scale: float | None = None,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Multi-head latent attention of a prompt, whose keys and values have been made from the latents.

    q_nope: (batch, tokens, heads, nope), q_rope: (batch, tokens, heads, rope), the parts without and with rotation; k_nope:
    (batch, keys, heads, nope); k_rope: (batch, keys, rope), shared by the heads; v: (batch, keys, heads, dim_v), dim_v up
    to nope + rope (128, 64 and 128 in DeepSeek's models); float16, bfloat16 or float32. Result: (batch, tokens, heads,
    dim_v); with `return_lse` also log(sum(exp(scores))), float32, (batch, heads, tokens).

    scale: (nope + rope) ** -0.5 if None. causal: the last query sees every key. With cu_seqlens, (sequences + 1,) int32,
    and max_seqlen, sequences lie one behind the other in a batch of 1; lse is then (heads, tokens).

    Masks, accumulation, rounding, determinism and gradients are those of `flash_attention`, which it calls on the joined
    parts (`flash_attention_varlen` for packed sequences). Raises WrongShape, WrongDtype, WrongValue,
    WrongDevice.

    Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1.
    """
    if max_seqlen is not None:
        max_seqlen = length(NAME, "max_seqlen", max_seqlen)
    try:
        device = v.device.type
    except AttributeError:
        refuse_other_types(NAME, mla_prefill, (q_nope, q_rope, k_nope, k_rope, v))
        raise
    if enabled(device):  # what is called below converts, too, but takes one query and one key
        named = {"q_nope": q_nope, "q_rope": q_rope, "k_nope": k_nope, "k_rope": k_rope, "v": v}
        q_nope, q_rope, k_nope, k_rope, v = converted(floats, named, device).values()
    tensors = (q_nope, q_rope, k_nope, k_rope, v)
    options: dict[str, Any] = {"causal": causal, "scale": scale, "return_lse": return_lse}
    if not torch.compiler.is_compiling():  # what is called below checks, too, and names itself
        MLA_PREFILL.call(*tensors, **options, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)
    query = torch.cat([q_nope, q_rope], -1)
    key = torch.cat([k_nope, k_rope[:, :, None].expand(-1, -1, k_nope.shape[2], -1)], -1)
    if cu_seqlens is None:
        return flash_attention(query, key, v, **options)
    packed = flash_attention_varlen(query[0], key[0], v[0], cu_seqlens, cu_seqlens, max_seqlen or 0, **options)
    return (packed[0][None], packed[1]) if isinstance(packed, tuple) else packed[None]
