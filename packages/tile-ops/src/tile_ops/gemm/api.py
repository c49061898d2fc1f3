"""`matmul` on torch tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import torch

from tile_ops.again import Offer, offer_whole, taken
from tile_ops.autocast import floats
from tile_ops.kernel import target_of
from tile_ops.operands import refuse_other_types
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation, traced

from . import scaled, strips
from .configs import plan
from .gradients import backward_by, by_columns, rows_of, setup_context
from .operands import Views, operands, result_shape
from .padding import Padded, PreparedPadded, is_needed
from .prepared import Prepared, along_k
from .problem import ACTIVATIONS, FLOAT8, GemmProblem, check, depends
from .scaled import PreparedScaled
from .strips import PreparedStrips

#: Whether autograd records calls on operands that require gradients.
_records = torch.is_grad_enabled
_FLOAT8 = tuple(getattr(torch, name) for name in FLOAT8)


def _autocast(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The bias gets the type of the result. Calls that write `out`, take scales or are of float8 are left alone."""
    if arguments["a"].dtype in _FLOAT8 or any(arguments.get(x) is not None for x in ("out", "scale_a", "scale_b")):
        return {}
    types = floats(arguments, dtype)
    if "bias" in types:
        types["bias"] = arguments["out_dtype"] or dtype
    return types


MATMUL = Operator(
    "matmul",
    GemmProblem.of,
    plan,
    lambda a, b, bias=None, out=None, scale_a=None, scale_b=None, grad=None, **_: target_of(
        a, b, bias, out, scale_a, scale_b, grad
    ),
    depends,
    _autocast,
)


@MATMUL.public
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(a @ b + bias), as torch.matmul for operands of two dimensions and more.

    a: (..., m, k), b: (..., k, n), bias: (n,), result: (..., m, n); leading dimensions broadcast. float16, bfloat16 and
    float32 (result: any of them, by default that of the operands), float8_e4m3 (result bfloat16, float16 or float32), int8
    (result int32). `activation` is None, "relu", "gelu" (by the error function) or "silu". `out` is written and returned;
    its rows must be contiguous and apart. One that shares memory with an operand gets a copy of the result.

    `scale_a`, `scale_b`, float32, for float8 and int8 with one matrix b, multiply the operands: one number for a tensor;
    (..., m) and (n,) for rows of a and columns of b; or, float8 only, (..., m, k / 128) and (k / 128, n / 128), rounded up,
    for blocks of 128 along k and 128 x 128. Then results are bfloat16, float16 or float32.

    Operands are read in place if their rows or their columns are contiguous (so a.mT costs nothing) and the leading
    dimensions collapse; others are copied first, and on NVIDIA those whose rows begin at no multiple of 16 bytes, where a copy
    costs less than it brings; and on Hopper, in tf32, the smaller operand of large products like a.mT @ b. Products are summed
    in float32 (int32 for int8), scales, bias and activation are applied there, and the result is rounded once. float32 operands
    are rounded to the nearest tf32 on NVIDIA if torch.backends.cuda.matmul.allow_tf32 says so (cut on Hopper where rows begin
    anywhere and are not copied). On a CPU whose tile registers multiply bfloat16 (AMX), a number of float16 is the exact sum of
    two of these in products of many rows whose result has 16 bits, and of the four products of two such sums the least is left
    out: at most 2^-18 of the product. Equal calls give equal bits. Tiles, parts along k and so the order of a sum depend on the
    shapes of the call. Empty tensors give an empty result, k = 0 activation(bias).

    Differentiable in a, b and bias, once, without `out` and scales; with an activation the backward computes the product
    again. The gradient that comes in is rounded to the operands' type. Raises WrongShape, WrongDtype, WrongStride (out),
    WrongValue, WrongDevice.

    Source: the definition; scales of blocks: DeepSeek-AI, DeepSeek-V3, 2024, section 3.3.2; two of bfloat16: G. Henry, P. T. P.
    Tang and A. Heinecke, ARITH 2019.
    """
    if out is None and scale_a is None and scale_b is None and not traced():
        # What native code knows needs nothing else that `Operation` asks, 0.6 of 2.2 us (from Python 3.12 on it comes first).
        try:
            if not (_records() and a.requires_grad):
                known = _known(a, b, bias, activation, out_dtype)
                if known is not None:
                    return known
                if a.dtype not in _FLOAT8:
                    return _matmul.unknown((a, b, bias, activation, out_dtype))
            elif a.dtype not in _FLOAT8:
                return _matmul(a, b, bias, activation, out_dtype)
        except AttributeError:
            refuse_other_types("matmul", matmul, (a, b))
            raise
    if out is not None:
        _matmul_out(a, b, out, bias, activation, out_dtype, scale_a, scale_b)
        return out
    if scale_a is not None or scale_b is not None or a.dtype in _FLOAT8:
        return _scaled_matmul(a, b, scale_a, scale_b, bias, activation, out_dtype)
    return _matmul(a, b, bias, activation, out_dtype)


@operation("matmul", public=matmul)
def _matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    call = MATMUL.call(a, b, bias=bias, activation=activation, out_dtype=out_dtype)
    return _run(call, a, b, bias)


_known = _matmul.again.call
_matmul.again.is_global(globals(), "_known")


@_matmul.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    return a.new_empty(result_shape("matmul", a, b), dtype=check(a, b, bias, activation, out_dtype))


@operation("scaled_matmul")
def _scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    call = MATMUL.call(a, b, bias=bias, activation=activation, out_dtype=out_dtype, scale_a=scale_a, scale_b=scale_b)
    return _run(call, a, b, bias, scale_a, scale_b)


@_scaled_matmul.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    dtype = check(a, b, bias, activation, out_dtype, None, scale_a, scale_b)
    return a.new_empty(result_shape("matmul", a, b), dtype=dtype)


@operation("matmul_out", mutates=("out",))
def _matmul_out(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
) -> None:
    call = MATMUL.call(
        a, b, bias=bias, activation=activation, out_dtype=out_dtype, scale_a=scale_a, scale_b=scale_b, out=out
    )
    if _written_alone(out, call.problem, a, b, bias, scale_a, scale_b):
        _run(call, a, b, bias, scale_a, scale_b, out=out)
        return
    call = MATMUL.call(a, b, bias=bias, activation=activation, out_dtype=out_dtype, scale_a=scale_a, scale_b=scale_b)
    out.copy_(_run(call, a, b, bias, scale_a, scale_b))


@_matmul_out.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
) -> None:
    check(a, b, bias, activation, out_dtype, out, scale_a, scale_b)


@operation("matmul_gradient")
def _matmul_gradient(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str, grad: torch.Tensor
) -> torch.Tensor:
    """grad * activation'(a @ b + bias); `grad` is of the operands' type."""
    call = MATMUL.call(a, b, bias=bias, activation=activation, grad=grad)
    return _run(call, a, b, bias, grad=grad)


@_matmul_gradient.register_fake
def _(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str, grad: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(grad, memory_format=torch.contiguous_format)


@operation("matmul_backward")
def _matmul_backward(a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a and of one matrix b by that of a @ b, all of one type; each lies as its operand does."""
    of_a, of_b = _like(a), _like(b)
    offer_whole(of_a, of_b, parts=_write_gradients(a, b, grad, of_a, of_b))
    return of_a, of_b


@_matmul_backward.register_fake
def _(a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(a), _like(b)


@operation("matmul_bias_backward")
def _matmul_bias_backward(
    a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`matmul_backward`, and the gradient of the bias: a row of ones times that of the result."""
    of_a, of_b, of_bias = _like(a), _like(b), torch.empty_like(bias, memory_format=torch.contiguous_format)
    parts = _write_gradients(a, b, grad, of_a, of_b)
    slopes = rows_of(grad)
    ones = _ones(slopes.shape[0], grad.dtype) if a.is_cpu else slopes.new_ones(1, slopes.shape[0])
    parts.append(_write(ones, slopes, of_bias[None]))
    if a.is_cpu:  # of a GPU they may be a graph's that is captured now
        offer_whole(of_a, of_b, of_bias, parts=parts, constants=[ones])
    return of_a, of_b, of_bias


@_matmul_bias_backward.register_fake
def _(
    a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _like(a), _like(b), torch.empty_like(bias, memory_format=torch.contiguous_format)


def _write_gradients(
    a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor
) -> list[Offer | None]:
    """Of a @ b, where they are for; what the products offer."""
    rows, slopes = rows_of(a), rows_of(grad)
    return [_write(slopes, b.mT, rows_of(of_a)), _write(rows.mT, slopes, of_b)]


@lru_cache(maxsize=64)
def _ones(count: int, dtype: torch.dtype) -> torch.Tensor:
    """A row of them, which nothing writes; of the last numbers of rows that there were, as these are many (`constants.py` keeps
    all)."""
    return torch.ones(1, count, dtype=dtype)


def _like(x: torch.Tensor) -> torch.Tensor:
    """A new tensor that lies as the matrix x does, row by row or column by column."""
    if x.ndim == 2 and by_columns(x):
        return torch.empty_strided(x.shape, (1, x.shape[0]), dtype=x.dtype, device=x.device)
    return x.new_empty(x.shape)


def _write(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Offer | None:
    """out = a @ b, which may lie column by column; what the product offers."""
    if by_columns(out):
        a, b, out = b.mT, a.mT, out.mT
    out_dtype = None if out.dtype == a.dtype else out.dtype
    _run(MATMUL.call(a, b, bias=None, activation=None, out_dtype=out_dtype), a, b, None, out=out)
    return taken()


def _run(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    grad: torch.Tensor | None = None,
) -> torch.Tensor:
    """The product, in `out` if it is given."""
    problem, kept = call.problem, call.kept
    if not kept:
        kept.update(shape=result_shape("matmul", a, b), dtype=getattr(torch, problem.out_dtype))
    if out is None:
        out = a.new_empty(kept["shape"], dtype=kept["dtype"])
    if not out.numel():
        return out
    known: Prepared | PreparedPadded | PreparedStrips | PreparedScaled | None = kept.get("prepared")
    if isinstance(known, PreparedScaled):
        if known.run(a, b, scale_a, scale_b, bias, out):
            return out
    elif known is not None and known.run(a, b, bias, out):
        return out
    again = kept.get("views") is not None and "prepared" not in kept
    left, right, repeat = _operands(call, a, b)
    whole = out.view(problem.batch, problem.m, problem.n)
    added = None if bias is None else bias.contiguous()
    if call.target.kind == "cuda" and is_needed(call, left, right, whole):
        rows = Padded.of(call, left, right, added, whole)
        multiply(call, rows.a, rows.b, rows.bias, rows.c)
        rows.unpack(call, whole)
        if again:
            no_bias = _added(call, None, rows.c)
            known = PreparedPadded.of(call, (left, right, added, whole), rows, no_bias) if added is bias else None
            kept["prepared"] = known
        return out
    of_a = _scales(scale_a, problem.scales, problem.m)
    of_b = _scales(scale_b, problem.scales, problem.n)
    slopes_of = None if grad is None else grad.reshape(whole.shape).contiguous()
    multiply(call, left, right, added, whole, of_a, of_b, slopes_of, repeat)
    if again and "scaled" in call:
        copied = added is not bias or _copied(scale_a, of_a) or _copied(scale_b, of_b)
        added = _added(call, bias, whole)
        known = None if copied else PreparedScaled.of(call, left, right, (of_a, of_b), added, whole, repeat)
        kept["prepared"] = known
    elif again:
        kind = PreparedStrips if any(role in call for role in strips.ROLES) else Prepared
        known = None if added is not bias else kind.of(call, left, right, _added(call, bias, whole), whole, repeat)
        kept["prepared"] = known
    return out


def multiply(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    grad: torch.Tensor | None = None,
    repeat: int = 1,
) -> None:
    """c = the product, by the kernels of the call's plan."""
    numbers = call.numbers
    activation = ACTIVATIONS.index(call.problem.activation)
    bias = _added(call, bias, c)
    a, b = along_k(call, a, b)
    if "scaled" in call:
        scaled.multiply(call, a, b, (scale_a, scale_b), bias, c, repeat)
    elif "panels" in call and "combine" in call:
        sums = c.new_empty(c.shape, dtype=torch.float32)
        strips.multiply(call, a, b, _no_bias(sums.dtype, sums.device), sums, repeat)
        call["combine"](sums, bias, c, activation)
    elif any(role in call for role in strips.ROLES):
        strips.multiply(call, a, b, bias, c, repeat)
    elif "direct" in call:
        call["direct"](a, b, bias, c, repeat, activation)
    elif "gemv" in call:
        call["gemv"](a, b, bias, c, activation)
    elif "staying" in call:
        call["staying"](a, b, scale_a, scale_b, bias, c, activation)
    elif "combine" in call:
        partial = c.new_empty((numbers["splits"], *c.shape[1:]), dtype=torch.float32)
        call["parts"](a, b, partial, numbers["steps"])
        call["combine"](partial, bias, c, activation)
    elif "finish" in call:
        whole, parts = numbers["whole"], numbers["parts"]
        partial = c.new_empty((numbers["pieces"], numbers["block_m"], numbers["block_n"]), dtype=torch.float32)
        call["parts"](a, b, bias, partial, c, whole, parts, numbers["steps"], activation)
        call["finish"](partial, bias, c, whole, parts, activation)
    else:
        call["product"](a, b, scale_a, scale_b, bias, grad, c, repeat, activation)


def _added(call: Call[GemmProblem], bias: torch.Tensor | None, c: torch.Tensor) -> torch.Tensor | None:
    """What the call's kernels take as the bias of a result like `c`; those of integers for all targets take none."""
    takes = bias is None and not (c.dtype == torch.int32 and "product" in call)
    return _no_bias(c.dtype, c.device) if takes else bias


@cache
def _no_bias(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What kernels take where there is none."""
    return torch.empty(0, dtype=dtype, device=device)


def _operands(call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """a and b as the kernels take them, and how many neighbours share a matrix."""
    views: Views | None = call.kept.get("views")
    if views is not None:
        return *views.of(a, b), call.kept["repeat"]
    given = operands("matmul", a, b, call.problem.scales is not None)
    call.kept.update(views=given.views(a, b), repeat=given.repeat)
    return given.a, given.b, given.repeat


def _scales(scale: torch.Tensor | None, scales: str | None, extent: int) -> torch.Tensor | None:
    """As the kernel takes them: one for each row, which all may be the same one, or those of blocks."""
    if scale is None:
        return None
    if scales == "rows":
        return scale.reshape(-1).expand(extent)
    return scale.reshape(math.prod(scale.shape[:-1]), scale.shape[-1]).contiguous()


def _copied(given: torch.Tensor | None, taken: torch.Tensor | None) -> bool:
    """Whether the kernels take other memory than is given."""
    return given is not None and taken is not None and given.data_ptr() != taken.data_ptr()


def _written_alone(out: torch.Tensor, problem: GemmProblem, *operands: torch.Tensor | None) -> bool:
    """Whether kernels can write the result there, as the matrices of the problem, while they read the operands."""
    memory = out.untyped_storage().data_ptr()
    if any(x is not None and x.untyped_storage().data_ptr() == memory for x in operands):
        return False
    try:
        out.view(problem.batch, problem.m, problem.n)
    except RuntimeError:
        return False
    return True


_matmul.register_autocast(_autocast)
_matmul.register_autograd(
    backward_by(_matmul, _matmul_gradient, _matmul_backward, _matmul_bias_backward), setup_context=setup_context
)
