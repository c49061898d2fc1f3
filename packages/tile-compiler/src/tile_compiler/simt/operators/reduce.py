"""`T.reduce_*`: the layout rule, and the staging of operands. The lowering is `lower_reduce.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tile_compiler.simt.distribution import Distribution, linear, pushed_forward, replicated
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import whole_fragment
from tile_compiler.simt.operators.twin import RuleSite
from tile_compiler.simt.terms import Ints
from tile_compiler.tileops.site import element_type
from tilelang.ir import tile_ir
from tilelang.ops import Reduce


def expand_reduce(op: Reduce, to: Expansion) -> Any:
    """Stage operands that are not whole fragments.

    before:     T.tl.reduce(S[0:64, 0:32], s[0:64])      S in shared memory
    after:      copy(S, S_tile); T.tl.reduce(S_tile, s)
    """
    before: list[Any] = []
    after: list[Any] = []
    src, dst = op.src, op.dst
    if not whole_fragment(src):
        held = tile_ir.whole(to.temporary([r.extent for r in src.region], element_type(src), f"{src.source.name}_tile"))
        before.append(move(src, held, to))
        src = held
    if not whole_fragment(dst) or to.share_storage(op.src, dst):
        target = dst
        dst = tile_ir.whole(
            to.temporary([r.extent for r in target.region], element_type(target), f"{target.source.name}_tile")
        )
        before += [] if op.clear else [move(target, dst, to)]
        after.append(move(dst, target, to))
    staged = Reduce(src, dst, op.lhs, op.rhs, op.combined, op.identity, op.kind, op.dim, op.clear, op.nan_propagate)
    return tile_ir.sequence([*before, staged.to_stmt(to.span), *after])


def result_of(shape: Sequence[int], dim: int) -> Ints:
    """For each element of a tile the number of the result that it enters."""
    kept = [1 if d == dim else s for d, s in enumerate(shape)]
    number = np.arange(math.prod(kept)).reshape(kept)
    return np.broadcast_to(number, shape)


@dataclass
class ReduceRule(Rule):
    """common: each result is held by all threads that hold an element which enters it (paper, figure 7)."""

    src: Unknown
    dst: Unknown
    dim: int
    threads: int

    def unknowns(self) -> tuple[Unknown, ...]:
        return (self.src, self.dst)

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        if level == Level.COMMON and self.src in known and self.dst not in known:
            src = known[self.src]
            assert isinstance(src, Distribution)
            if len(np.unique(src.thread_of)) < self.threads:  # idle threads may need the results as well
                yield self.dst, replicated(self.dst.shape, self.threads)
            else:
                yield self.dst, pushed_forward(src, result_of(self.src.shape, self.dim), self.dst.shape)
        elif level == Level.FREE and self.src not in known:
            yield self.src, linear(self.src.shape, self.threads)


def reduce_rule(op: Reduce, site: RuleSite) -> ReduceRule:
    src, dst = site.unknown(op.src.source), site.unknown(op.dst.source)
    return ReduceRule("T.reduce", site.span, src, dst, op.dim % len(src.shape), site.threads)
