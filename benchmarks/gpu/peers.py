"""The peers of a case, as functions that write into a given output: cuBLAS and cuDNN through torch, and Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cases import Attention, Case, Gemm, Gemv, Mla

Call = Callable[[], Any]

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "tf32": torch.float32,
    "float32": torch.float32,
    "int8": torch.int8,
    "int32": torch.int32,
    "float8_e4m3fn": torch.float8_e4m3fn,
}


def inputs(case: Case) -> list[torch.Tensor]:
    """Random operands and the output, which holds NaN (or the smallest integer) until a kernel writes it."""

    def random(*shape: int) -> torch.Tensor:
        if case.dtype == "int8":
            return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
        return torch.randn(shape, device="cuda", dtype=torch.float16).to(DTYPES[case.dtype])

    out_dtype = DTYPES[case.out_dtype if isinstance(case, Gemm) else case.dtype]
    if isinstance(case, Gemm):
        b = (case.n, case.k) if case.transpose_b else (case.k, case.n)
        shape: tuple[int, ...] = (case.m, case.n)
        operands = [random(case.m, case.k), random(*b)]
    elif isinstance(case, Gemv):
        shape = (case.n,)
        operands = [random(case.n, case.k), random(case.k)]
    elif isinstance(case, Attention):
        kv = (case.batch, case.heads_kv, case.tokens, case.dim)
        shape = (case.batch, case.heads, case.tokens, case.dim)
        operands = [random(*shape), random(*kv), random(*kv)]
    else:
        shape = (case.batch, case.heads, case.dim)
        operands = [random(*shape), random(case.batch, case.heads, case.pe_dim)]
        operands += [random(case.batch, case.tokens, 1, dim) for dim in (case.dim, case.pe_dim)]
    out = torch.empty(shape, device="cuda", dtype=out_dtype)
    poison(out)
    return [*operands, out]


def poison(out: torch.Tensor) -> None:
    out.fill_(float("nan") if out.is_floating_point() else -(2**31))


def relative_error(case: Case, operands: list[torch.Tensor], out: torch.Tensor) -> float:
    """||out - reference|| / ||reference|| in float64, over some rows of a product or some heads of attention."""
    if isinstance(case, Gemm):
        rows = torch.randperm(case.m, device="cuda")[:128]
        columns = torch.randperm(case.n, device="cuda")[:4096]
        b = operands[1][columns].double().T if case.transpose_b else operands[1][:, columns].double()
        want, got = operands[0][rows].double() @ b, out[rows][:, columns].double()
    elif isinstance(case, Gemv):
        rows = torch.randperm(case.n, device="cuda")[:4096]
        want, got = operands[0][rows].double() @ operands[1].double(), out[rows].double()
    elif isinstance(case, Attention):
        head = case.heads - 1
        q, k, v = (x[-1, min(head, x.shape[1] - 1)].double() for x in operands)
        rows = torch.randperm(case.tokens, device="cuda")[:512]
        scores = q[rows] @ k.T / case.dim**0.5
        if case.causal:
            scores.masked_fill_(torch.arange(case.tokens, device="cuda")[None] > rows[:, None], float("-inf"))
        want, got = scores.softmax(-1) @ v, out[-1, head][rows].double()
    else:
        which = torch.randperm(case.batch, device="cuda")[:4]
        q, q_pe, kv, k_pe = (x[which].double().squeeze(2) for x in operands)
        scores = (q @ kv.mT + q_pe @ k_pe.mT) / (case.dim + case.pe_dim) ** 0.5
        want, got = scores.softmax(-1) @ kv, out[which].double()
    return float((got - want).norm() / want.norm())


def peers(case: Case, tensors: list[torch.Tensor]) -> dict[str, tuple[Call, torch.Tensor]]:
    """The peers that this installation has: name -> (call, the output that it writes); who refuses the case is named."""
    found = {}
    for name, call in _OFFERED[type(case)](case, *tensors).items():
        try:
            written = call()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"  {name} refuses {case.name}: {str(error).splitlines()[0][:100]}", flush=True)
        else:
            found[name] = (call, written if isinstance(written, torch.Tensor) else tensors[-1])
    return found


def _gemm(case: Gemm, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Call]:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    right = b.T if case.transpose_b else b
    if case.dtype == "int8":
        return {"cuBLAS": lambda: torch._int_mm(a, right, out=c)}
    if case.dtype == "float8_e4m3fn":
        one = torch.ones((), device="cuda")
        return {"cuBLAS": lambda: torch._scaled_mm(a, right, one, one, out_dtype=c.dtype, out=c)}
    offered = {"cuBLAS": lambda: torch.matmul(a, right, out=c)}
    if case.dtype in ("float16", "bfloat16"):
        from triton_kernels import matmul

        offered["Triton"] = lambda: matmul(a, right, c)
    return offered


def _gemv(case: Gemv, w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> dict[str, Call]:
    from triton_kernels import matvec

    return {"cuBLAS": lambda: torch.matmul(x[None], w.T, out=y[None])[0], "Triton": lambda: matvec(w, x, y)}


def _attention(case: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor) -> dict[str, Call]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from triton_kernels import attention

    def sdpa(backend: SDPBackend) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=case.causal, enable_gqa=case.heads != case.heads_kv
                )

        return call

    return {
        "sdpa_flash": sdpa(SDPBackend.FLASH_ATTENTION),
        "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION),
        "Triton": lambda: attention(q, k, v, o, case.causal),
    }


def _mla(case: Mla, *tensors: torch.Tensor) -> dict[str, Call]:
    """Two batched products and a softmax; queries and keys are joined outside of the timing."""
    q, q_pe, kv, k_pe, _ = tensors
    query, values = torch.cat([q, q_pe], -1), kv.squeeze(2)
    keys = torch.cat([values, k_pe.squeeze(2)], -1)
    scale = (case.dim + case.pe_dim) ** -0.5
    return {"torch": lambda: torch.bmm(torch.softmax(torch.bmm(query, keys.mT) * scale, -1), values)}


_OFFERED: dict[type, Callable[..., dict[str, Call]]] = {
    Gemm: _gemm,
    Gemv: _gemv,
    Attention: _attention,
    Mla: _mla,
}
