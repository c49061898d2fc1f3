"""The recurrences token by token in float64, and how far the operators may be from them."""

from __future__ import annotations

import itertools

import torch

#: Largest error relative to |expected| plus the root mean square of `expected`: weights and states are rounded to the
#: type once before they are multiplied.
TOLERANCES = {"float32": 2e-5, "float16": 6e-3, "bfloat16": 4e-2}


def ssd_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    *,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    initial_states: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T, y_t = h_t C_t + D x_t: y and the last states; float64."""
    x, dt, A, B, C = (tensor.double() for tensor in (x, dt, A, B, C))
    if cu_seqlens is not None:
        ends = cu_seqlens.tolist()
        parts = []
        for n, (first, last) in enumerate(itertools.pairwise(ends)):
            rows = [t[:, first:last] for t in (x, dt, B, C)]
            start = None if initial_states is None else initial_states[n : n + 1]
            gate = None if z is None else z[:, first:last]
            options = {"D": D, "z": gate, "dt_bias": dt_bias, "dt_softplus": dt_softplus, "initial_states": start}
            parts.append(ssd_scan(rows[0], rows[1], A, rows[2], rows[3], **options))  # type: ignore[arg-type]
        return torch.cat([y for y, _ in parts], 1), torch.cat([state for _, state in parts])
    if dt_bias is not None:
        dt = dt + dt_bias.double()
    dt = torch.nn.functional.softplus(dt) if dt_softplus else dt.clamp_min(0)
    per_group = x.shape[2] // B.shape[2]
    B, C = B.repeat_interleave(per_group, 2), C.repeat_interleave(per_group, 2)
    state = x.new_zeros(*x[:, 0].shape, B.shape[-1]) if initial_states is None else initial_states.double()
    outputs = []
    for t in range(x.shape[1]):
        added = (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None, :]
        state = torch.exp(dt[:, t] * A)[..., None, None] * state + added
        outputs.append((state * C[:, t, :, None, :]).sum(-1))
    y = torch.stack(outputs, 1) if outputs else torch.zeros_like(x)
    if D is not None:
        y = y + D.double()[:, None] * x
    if z is not None:
        y = y * torch.nn.functional.silu(z.double())
    return y, state


def chunk_state(
    B: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, dA_cumsum: torch.Tensor, **_: object
) -> torch.Tensor:
    """The sum over the tokens of each chunk of exp(s_end - s) dt x B^T; float64."""
    B, x = _by_chunks(B, x, dt)
    weights = torch.exp(dA_cumsum[..., -1:].double() - dA_cumsum) * dt
    return torch.einsum("bhcl,bclhp,bclhn->bchpn", weights, x, B)


def chunk_scan(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    states: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
) -> torch.Tensor:
    """exp(s_l) states C_l + sum over m <= l of cb[l, m] exp(s_l - s_m) dt_m x_m + D x_l, times silu(z_l); float64."""
    rows, inputs = _by_chunks(C, x, dt)
    s = dA_cumsum.double()
    weights = (torch.exp(s[..., :, None] - s[..., None, :]) * dt[..., None, :]).tril()
    weights = weights * cb.double().tril().repeat_interleave(x.shape[2] // cb.shape[2], 2).transpose(1, 2)
    y = torch.einsum("bhclm,bcmhp->bclhp", weights, inputs)
    y = y + torch.einsum("bhcl,bchpn,bclhn->bclhp", torch.exp(s), states.double(), rows)
    y = y.flatten(1, 2)[:, : x.shape[1]]
    if D is not None:
        y = y + D.double()[:, None] * x
    return y if z is None else y * torch.nn.functional.silu(z.double())


def _by_chunks(factor: torch.Tensor, x: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """B or C with a row for each head, and x: (batch, nchunks, chunk_size, nheads, columns), 0 past the end."""
    factor = factor.repeat_interleave(x.shape[2] // factor.shape[2], 2)
    missing = dt.shape[2] * dt.shape[3] - x.shape[1]
    padded = (torch.nn.functional.pad(t.double(), (0, 0, 0, 0, 0, missing)) for t in (factor, x))
    return tuple(t.unflatten(1, dt.shape[2:]) for t in padded)


def ssd_step(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    *,
    z: torch.Tensor | None = None,
    **options: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence for one token: y and the state after it; float64."""
    rows = [tensor[:, None] for tensor in (x, dt, B, C)]
    gate = None if z is None else z[:, None]
    y, after = ssd_scan(rows[0], rows[1], A, rows[2], rows[3], z=gate, initial_states=state, **options)  # type: ignore[arg-type]
    return y[:, 0], after
