"""Mamba-2 layers of transformers on `ssd_scan` and `ssd_step`.

Such layers (of Mamba-2, Bamba, Zamba2, Nemotron-H, Granite) call two functions of their own module by name; the
package `kernels` and mamba_ssm replace them there, for all models at once. Their signatures are that of mamba_ssm.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from tile_ops import ssd_scan, ssd_step
from tile_ops.errors import WrongValue
from tile_ops.state_space.problem import CHUNK_SIZES


def use_scans(model: torch.nn.Module) -> None:
    """Replace the two functions in the Mamba-2 layers of this model, and in no other."""
    replacements = {"mamba2_chunk_scan": chunk_scan, "mamba2_selective_state_update": state_update}
    for module in model.modules():
        forward = inspect.unwrap(type(module).forward)
        if replacements.keys() <= set(forward.__code__.co_names):
            module.forward = MethodType(_finding(forward, replacements), module)


def _finding(function: FunctionType, names: Mapping[str, object]) -> FunctionType:
    """The function, which finds `names` before it looks into its module."""
    copy = FunctionType(
        function.__code__, {**function.__globals__, **names}, None, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def chunk_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    **_: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """`ssd_scan` as Mamba-2 layers call it: hidden_states (batch, tokens, heads, dim), the others as there.

    `chunk_size` changes the speed and not the result; one that `ssd_scan` does not take becomes the nearest. Steps
    outside of `dt_limit` are cut. Raises WrongValue for packed sequences, which transformers' convolution would mix.
    """
    if seq_idx is not None or cu_seqlens is not None:
        raise WrongValue("mamba2_chunk_scan: the batch is packed; pass one sequence in each row")
    if tuple(dt_limit) != (0.0, math.inf):
        dt = dt if dt_bias is None else dt + dt_bias
        dt = (torch.nn.functional.softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
        dt_bias, dt_softplus = None, False
    return ssd_scan(
        hidden_states,
        dt,
        A,
        B,
        C,
        chunk_size=min(CHUNK_SIZES, key=lambda size: abs(size - chunk_size)),
        D=D,
        z=z,
        dt_bias=dt_bias,
        dt_softplus=dt_softplus,
        initial_states=initial_states,
        return_final_states=return_final_states,
    )


def state_update(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    **_: Any,
) -> Tensor:
    """One token: hidden_states (batch, heads, dim), state (batch, heads, dim, dstate), which is changed.

    dt, D and dt_bias come repeated for each of a head's elements, and A also along the state, as mamba_ssm takes them.
    Where gradients may be asked for, it is a scan of one token.
    """
    options: dict[str, Any] = {
        "D": None if D is None else D[:, 0],
        "dt_bias": None if dt_bias is None else dt_bias[:, 0],
        "dt_softplus": dt_softplus,
    }
    dt, A = dt[..., 0], A[:, 0, 0]
    if not torch.is_grad_enabled():
        return ssd_step(state, hidden_states, dt, A, B, C, z=z, **options)
    rows = [tensor[:, None] for tensor in (hidden_states, dt, B, C)]
    gate = None if z is None else z[:, None]
    scanned: dict[str, Any] = {
        "chunk_size": CHUNK_SIZES[0],
        "initial_states": state,
        "return_final_states": True,
        **options,
    }
    y, final = ssd_scan(rows[0], rows[1], A, rows[2], rows[3], z=gate, **scanned)
    state.copy_(final)
    return y[:, 0]
