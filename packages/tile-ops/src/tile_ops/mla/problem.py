"""A call of `mla_decode` as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of, repair
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.kernel import threads_of

DTYPES = ("float16", "bfloat16", "float32")
BULK = 16  # bytes: where bulk copies begin (PTX ISA, "cp.async.bulk.tensor")
ALIGNMENT = 16  # of page sizes and head dimensions: what a matrix instruction takes at once


@dataclass(frozen=True)
class DecodeProblem:
    """`columns` pages of `page` tokens for each of `batch` sequences; rows of `dim` + `rope` elements. `aligned`: the cache
    and the queries begin at multiples of 16 bytes. `threads` share the work on a CPU."""

    batch: int
    heads: int
    dim: int
    rope: int
    page: int
    pages: int
    columns: int
    dtype: str
    aligned: bool = True
    threads: int = 1

    @classmethod
    def of(
        cls,
        q_nope: torch.Tensor,
        q_rope: torch.Tensor,
        cache: torch.Tensor,
        block_table: torch.Tensor,
        lengths: torch.Tensor,
        *,
        scale: float,
        return_lse: bool = False,
    ) -> DecodeProblem:
        """Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
        shapes = ", ".join(
            f"{name} {tuple(tensor.shape)}"
            for name, tensor in (
                ("q_nope", q_nope),
                ("q_rope", q_rope),
                ("cache", cache),
                ("block_table", block_table),
                ("lengths", lengths),
            )
        )
        if (q_nope.ndim, q_rope.ndim, cache.ndim, block_table.ndim, lengths.ndim) != (3, 3, 3, 2, 1):
            raise WrongShape(
                f"mla_decode: {shapes}; expected q_nope (batch, heads, dim), q_rope (batch, heads, rope), "
                "cache (pages, page, dim + rope), block_table (batch, columns), lengths (batch,)"
            )
        batch, heads, dim = q_nope.shape
        pages, page, row = cache.shape
        rope = q_rope.shape[2]
        if q_rope.shape[:2] != (batch, heads) or block_table.shape[0] != batch or lengths.shape[0] != batch:
            raise WrongShape(f"mla_decode: {shapes}; batch and heads must be the same everywhere")
        if row != dim + rope:
            raise WrongShape(
                f"mla_decode: {shapes}; a row of the cache must hold the latent and then the rotated key: "
                f"{dim} + {rope} elements"
            )
        if not (dim and rope and page) or dim % ALIGNMENT or rope % ALIGNMENT or page % ALIGNMENT:
            raise WrongShape(
                f"mla_decode: {shapes}; dim, rope and the page size must be multiples of {ALIGNMENT}: pad them"
            )
        dtype = name_of(q_nope.dtype)
        if dtype not in DTYPES or q_rope.dtype != q_nope.dtype or cache.dtype != q_nope.dtype:
            raise WrongDtype(
                f"mla_decode: q_nope is {q_nope.dtype}, q_rope {q_rope.dtype}, cache {cache.dtype}; all must be "
                f"one of {', '.join(DTYPES)}: {repair('cache', cache.dtype, 'q_nope', DTYPES)}"
            )
        if block_table.dtype != torch.int32 or lengths.dtype != torch.int32:
            raise WrongDtype(
                f"mla_decode: block_table is {block_table.dtype}, lengths {lengths.dtype}; both must be torch.int32: "
                "block_table.int()"
            )
        if not cache.is_contiguous():
            raise WrongStride(
                f"mla_decode: cache has strides {cache.stride()} and is too large to copy; allocate it contiguous"
            )
        if not 0 < scale < float("inf"):
            raise WrongValue(f"mla_decode: scale is {scale}; expected a positive number, often head_dim ** -0.5")
        # Queries that are not contiguous are copied, and copies are aligned.
        read = [cache, *(q for q in (q_nope, q_rope) if q.is_contiguous())]
        aligned = all(tensor.data_ptr() % BULK == 0 for tensor in read)
        return cls(batch, heads, dim, rope, page, pages, block_table.shape[1], dtype, aligned, threads_of(q_nope))

    @property
    def has_keys(self) -> bool:
        """Whether any sequence can have a key."""
        return self.pages > 0 and self.columns > 0
