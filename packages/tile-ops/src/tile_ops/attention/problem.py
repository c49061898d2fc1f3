"""A call of attention as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import Any

import torch

from tile_ops.dtypes import name_of, repair
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.kernel import threads_of

DTYPES = ("float16", "bfloat16", "float32")
LARGEST_DIM = 256

#: A window's side that reaches every key. Twice it and a number of tokens stay below 2^31.
UNLIMITED = 1 << 29


@dataclass(frozen=True)
class AttentionProblem:
    """`tokens` queries of `heads` heads over `keys` keys of `heads_kv` heads, `batch` times; values have `dim_v` elements.

    Query i sees the keys from i + past - left to i + past + right, past = keys - tokens. `threads` share the work on a CPU.
    """

    batch: int
    tokens: int
    keys: int
    heads: int
    heads_kv: int
    dim: int
    dim_v: int
    dtype: str
    left: int
    right: int
    scale: float
    softcap: float | None
    sinks: bool
    threads: int = 1

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool = False,
        window: tuple[int, int] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
        return_lse: bool = False,
    ) -> AttentionProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        if q.ndim != 4 or k.ndim != 4:
            raise WrongShape(
                f"flash_attention: q has {q.ndim} dimensions and k has {k.ndim}; "
                "both must have 4: (batch, tokens, heads, dim)"
            )
        batch, tokens, heads, dim = q.shape
        keys, heads_kv = k.shape[1:3]
        if k.shape[0] != batch or k.shape[3] != dim or v.shape[:3] != k.shape[:3]:
            raise WrongShape(
                f"flash_attention: q has shape {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; "
                f"k and v must both be ({batch}, keys, heads_kv, {dim}), or v with fewer elements to a head"
            )
        check_heads("flash_attention", heads, heads_kv, dim)
        check_values("flash_attention", dim, v.shape[3])
        dtype = check_dtypes("flash_attention", q, k, v)
        check_sinks("flash_attention", sinks, heads)
        left, right = sides("flash_attention", causal, window)
        scale, softcap = factors("flash_attention", dim, scale, softcap)
        shape = (batch, tokens, keys, heads, heads_kv, dim, v.shape[3])
        return cls(*shape, dtype, left, right, scale, softcap, sinks is not None, threads_of(q))

    @property
    def mask(self) -> str:
        """What the kernel is written for: "full", "causal" or "window"."""
        if self.left >= UNLIMITED:
            if self.right >= UNLIMITED:
                return "full"
            if self.right == 0:
                return "causal"
        return "window"


@dataclass(frozen=True)
class PackedProblem:
    """Sequences of different lengths one behind the other: `call` is that of one sequence as long as all of them, `longest`
    the power of two that the longest one's queries do not exceed."""

    call: AttentionProblem
    sequences: int
    longest: int

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int,
        *,
        max_seqlen_k: int | None = None,
        causal: bool = False,
        window: tuple[int, int] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
        return_lse: bool = False,
    ) -> PackedProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        name = "flash_attention_varlen"
        if q.ndim != 3 or k.ndim != 3 or v.ndim != 3 or v.shape[:2] != k.shape[:2] or k.shape[2] != q.shape[2]:
            raise WrongShape(
                f"{name}: q has shape {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; "
                "(all tokens, heads, dim) and twice (all keys, heads_kv, dim) are expected"
            )
        if cu_seqlens_q.ndim != 1 or cu_seqlens_k.shape != cu_seqlens_q.shape or not len(cu_seqlens_q):
            raise WrongShape(
                f"{name}: cu_seqlens_q has shape {tuple(cu_seqlens_q.shape)}, cu_seqlens_k {tuple(cu_seqlens_k.shape)}; "
                "both must be (sequences + 1,): where each begins, and where the last one ends"
            )
        for label, starts in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
            if starts.dtype not in (torch.int32, torch.int64):
                raise WrongDtype(f"{name}: {label} is {starts.dtype}; torch.int32 is expected: {label}.int()")
        max_seqlen_q = length(name, "max_seqlen_q", max_seqlen_q)
        if max_seqlen_k is not None:
            length(name, "max_seqlen_k", max_seqlen_k)
        heads, heads_kv, dim = q.shape[1], k.shape[1], q.shape[2]
        check_heads(name, heads, heads_kv, dim)
        check_values(name, dim, v.shape[2])
        dtype = check_dtypes(name, q, k, v)
        check_sinks(name, sinks, heads)
        left, right = sides(name, causal, window)
        scale, softcap = factors(name, dim, scale, softcap)
        shape = (1, len(q), len(k), heads, heads_kv, dim, v.shape[2])
        call = AttentionProblem(*shape, dtype, left, right, scale, softcap, sinks is not None)
        return cls(call, len(cu_seqlens_q) - 1, power_of_two(max_seqlen_q))


def length(name: str, what: str, longest: Any) -> int:
    """The length of the longest sequence. Raises WrongValue."""
    found = whole(name, what, longest, "the length of the longest sequence")
    if found < 0:
        raise WrongValue(f"{name}: {what} is {found}; the length of the longest sequence is expected")
    return found


def whole(name: str, what: str, number: Any, expected: str) -> int:
    """An int, and what stands for one: numpy's, and a CPU's tensor with one element. Raises WrongValue."""
    if isinstance(number, (int, torch.SymInt)):
        return number
    if isinstance(number, torch.Tensor) and not number.is_cpu:
        raise WrongValue(
            f"{name}: {what} is a tensor on {number.device}; {expected}, an int, is expected: int({what}) reads it, and waits "
            "for the device"
        )
    try:
        return index(number)
    except TypeError:
        repair = f": int({what})" if isinstance(number, float) else ""
        raise WrongValue(f"{name}: {what} is {number!r}; {expected}, an int, is expected{repair}") from None


def power_of_two(number: int) -> int:
    """The least one that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def check_heads(name: str, heads: int, heads_kv: int, dim: int) -> None:
    """Raises WrongShape unless every key head serves as many heads of q, of a dimension that kernels are written for."""
    if heads_kv < 1 or heads % heads_kv:
        raise WrongShape(
            f"{name}: q has {heads} heads, k and v have {heads_kv}; q needs a multiple of theirs, so that each key head "
            "serves as many"
        )
    if not 8 <= dim <= LARGEST_DIM or dim % 8:
        raise WrongShape(
            f"{name}: the heads have {dim} elements; a multiple of 8 from 8 to {LARGEST_DIM} is expected: pad with zeros "
            "and pass scale"
        )


def check_values(name: str, dim: int, dim_v: int) -> None:
    """Raises WrongShape unless values are as wide as keys or narrower."""
    if not 8 <= dim_v <= dim or dim_v % 8:
        raise WrongShape(
            f"{name}: the heads of v have {dim_v} elements; a multiple of 8 from 8 to {dim}, that of k, is expected"
        )


def check_dtypes(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str:
    """The name of the type of all three. Raises WrongDtype."""
    dtype = name_of(q.dtype)
    if dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise WrongDtype(
            f"{name}: q is {q.dtype}, k {k.dtype}, v {v.dtype}; all must be one of {', '.join(DTYPES)}: "
            f"{repair('q', q.dtype, 'k' if k.dtype != q.dtype else 'v', DTYPES)}"
        )
    return dtype


def check_sinks(name: str, sinks: torch.Tensor | None, heads: int) -> None:
    """Raises WrongShape, WrongDtype."""
    if sinks is None:
        return
    if sinks.shape != (heads,):
        raise WrongShape(
            f"{name}: sinks has shape {tuple(sinks.shape)}; one number for each head is expected: ({heads},)"
        )
    if not sinks.dtype.is_floating_point:
        raise WrongDtype(f"{name}: sinks is {sinks.dtype}; a floating point type is expected: sinks.float()")


def check_lengths(what: str, ends: torch.Tensor, rows: int, longest: int) -> None:
    """Raises WrongValue where a CPU's cumulative lengths do not go up from 0 to all rows, or a sequence is longer than said."""
    if type(ends) is not torch.Tensor or ends.device.type != "cpu":
        return
    values = ends.tolist()
    if values[0] != 0 or values[-1] != rows or sorted(values) != values:
        raise WrongValue(
            f"flash_attention_varlen: {what} is {values}; expected an ascending row from 0 to all rows, {rows}"
        )
    found = max((end - begin for begin, end in pairwise(values)), default=0)
    if found > longest:
        raise WrongValue(
            f"flash_attention_varlen: max_seqlen_{what[-1]} is {longest}, but a sequence has {found} rows; pass {found} or more"
        )


def pair(name: str, window: tuple[int, int] | None) -> tuple[int, int]:
    """A window as it is passed, (-1, -1) for None. Raises WrongValue for what is no pair of ints, such as a single number."""
    if window is None:
        return -1, -1
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise WrongValue(
            f"{name}: window is {window!r}; (left, right), two numbers of keys, is expected: (127, 0) is a query's own key "
            "and 127 before it"
        )
    left, right = window
    if type(left) is not int or type(right) is not int:
        left, right = (
            whole(name, what, side, "a number of keys") for what, side in (("window[0]", left), ("window[1]", right))
        )
    return left, right


def sides(name: str, causal: bool, window: tuple[int, int] | None) -> tuple[int, int]:
    """How many keys a query sees to its left and right, at most UNLIMITED. Raises WrongValue."""
    left, right = pair(name, window)
    if left < -1 or right < -1:
        raise WrongValue(
            f"{name}: window is {window}; two numbers of keys, to the left and to the right, are expected: -1 for all"
        )
    left, right = (UNLIMITED if side == -1 else min(side, UNLIMITED) for side in (left, right))
    return left, 0 if causal else right


def factors(name: str, dim: int, scale: float | None, softcap: float | None) -> tuple[float, float | None]:
    """The factor of scores and the soft limit of their size, None for none. Raises WrongValue."""
    scale = dim**-0.5 if scale is None else scale
    if not 0 < scale < math.inf:
        raise WrongValue(f"{name}: scale is {scale}; a positive number is expected, such as dim ** -0.5")
    if softcap is not None and not 0 < softcap < math.inf:
        raise WrongValue(f"{name}: softcap is {softcap}; a positive number is expected, or None for no limit")
    return scale, softcap
