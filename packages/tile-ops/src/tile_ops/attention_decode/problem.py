"""A call of decode attention as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.attention.problem import check_dtypes, check_heads, check_sinks, factors, sides
from tile_ops.errors import WrongDtype, WrongShape, WrongValue

NAME = "flash_decode"

#: Keys of a tile. A page holds a whole number of tiles, or a tile a whole number of pages.
TILE = 64


@dataclass(frozen=True)
class DecodeProblem:
    """One query for each of `batch` sequences of up to `columns` pages; `splits` is 0 where the plan may choose."""

    batch: int
    heads: int
    heads_kv: int
    dim: int
    page_size: int
    columns: int
    dtype: str
    left: int
    scale: float
    softcap: float | None
    sinks: bool
    splits: int

    @property
    def group(self) -> int:
        """Heads of q that share a head of the cache."""
        return self.heads // self.heads_kv

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        block_table: torch.Tensor,
        lengths: torch.Tensor,
        *,
        window: tuple[int, int] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
        splits: int | None = None,
        return_lse: bool = False,
    ) -> DecodeProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        if q.ndim != 3 or k_cache.ndim != 4:
            raise WrongShape(
                f"{NAME}: q has {q.ndim} dimensions and k_cache has {k_cache.ndim}; (batch, heads, dim) and (pages, "
                "page_size, heads_kv, dim) are expected"
            )
        batch, heads, dim = q.shape
        _, page_size, heads_kv, dim_kv = k_cache.shape
        if dim_kv != dim or v_cache.shape != k_cache.shape:
            raise WrongShape(
                f"{NAME}: q has shape {tuple(q.shape)}, k_cache {tuple(k_cache.shape)}, v_cache {tuple(v_cache.shape)}; "
                f"both caches must be (pages, page_size, heads_kv, {dim})"
            )
        if page_size < 1 or (page_size % TILE and (TILE % page_size or page_size < 8)):
            raise WrongShape(
                f"{NAME}: a page holds {page_size} tokens; 8, 16, 32 or a multiple of {TILE} is expected: make the cache "
                "with such pages"
            )
        if block_table.ndim != 2 or block_table.shape[0] != batch or lengths.shape != (batch,):
            raise WrongShape(
                f"{NAME}: block_table has shape {tuple(block_table.shape)}, lengths {tuple(lengths.shape)}; "
                f"({batch}, pages of a sequence) and ({batch},) are expected"
            )
        check_heads(NAME, heads, heads_kv, dim)
        dtype = check_dtypes(NAME, q, k_cache, v_cache)
        for name, tensor in (("block_table", block_table), ("lengths", lengths)):
            if tensor.dtype not in (torch.int32, torch.int64):
                raise WrongDtype(f"{NAME}: {name} is {tensor.dtype}; torch.int32 is expected: {name}.int()")
        check_sinks(NAME, sinks, heads)
        if splits is not None and not 1 <= splits <= 256:
            raise WrongValue(f"{NAME}: splits is {splits}; 1 to 256 is expected, or None to let the plan choose")
        left, _ = sides(NAME, True, window)
        scale, softcap = factors(NAME, dim, scale, softcap)
        columns = block_table.shape[1]
        return cls(
            batch,
            heads,
            heads_kv,
            dim,
            page_size,
            columns,
            dtype,
            left,
            scale,
            softcap,
            sinks is not None,
            splits or 0,
        )
