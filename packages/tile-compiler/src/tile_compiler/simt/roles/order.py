"""The order of a loop's statements in which tensor cores and the other units work at the same time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tile_compiler.simt.pipeline_schedule import Piece, mentions, touched
from tile_compiler.simt.roles.products import registers_of, result_of


@dataclass(frozen=True)
class Step:
    """A piece, done for the iteration that is `ahead` of the loop's."""

    piece: Piece
    ahead: int


@dataclass(frozen=True)
class Overlap:
    """`first` for iteration 0; then `steady` in a loop one shorter; at last `last` for the last iteration."""

    first: tuple[Piece, ...]
    steady: tuple[Step, ...]
    last: tuple[Piece, ...]
    ahead: tuple[Piece, ...]


def overlap(
    pieces: Sequence[Piece], asynchronous: Collection[int], tiles: Mapping[Any, int], roots: Mapping[Any, Any]
) -> Overlap | None:
    """Bring the first products of the next iteration before the products that wait for this iteration's other work.

    before, iteration i:   S = Q @ K[i];  P = f(S);  O = g(O);  O += P @ V[i]
    after:                 S = Q @ K[0];  P = f(S);  O = g(O)
        for i in n - 1:    S = Q @ K[i + 1];  O += P @ V[i];  f'(S);  P = S;  O = g(O)
                           O += P @ V[n - 1]

    (FlashAttention-3, section 3.2.) While the two products run, nothing waits; f runs beside the second. Statements
    that touch what the second product uses (P and O) come last. None where no product depends on an earlier one, or
    where the two parts that change places share more than `tiles`, the tiles of channels with their versions.

    A tile that both parts use needs three versions: the slot of V[i] is free when O += P @ V[i] is done, and the product
    that comes right after it already takes the tile of iteration i + versions - 1, so that with two it would wait for
    the whole copy in each iteration (`in_turn` is the order then).
    """
    parts = _parts(pieces, asynchronous)
    if parts is None:
        return None
    ahead, between, behind = parts
    if any(_conflict(a, b, tiles, roots) for a in ahead for b in behind):
        return None
    if any(
        n < 3 and any(t in mentions(a) for a in ahead) and any(t in mentions(b) for b in behind)
        for t, n in tiles.items()
    ):
        return None
    busy = {r for p in behind if p.place in asynchronous for r in registers_of(p)}
    early: list[Piece] = []
    late: list[Piece] = []
    for piece in between:
        waits = bool(mentions(piece) & busy) or any(_conflict(piece, other, {}, roots) for other in late)
        (late if waits else early).append(piece)
    steady = [*(Step(p, 1) for p in ahead), *(Step(p, 0) for p in behind), *(Step(p, 1) for p in (*early, *late))]
    return Overlap((*ahead, *between), tuple(steady), tuple(behind), tuple(ahead))


def in_turn(pieces: Sequence[Piece], asynchronous: Collection[int], roots: Mapping[Any, Any]) -> list[Piece]:
    """Without overlap of iterations: what the dependent products need nothing of comes behind them, and runs beside them.

    before:   S = Q @ K;  P = f(S);  l = l + sum(S);  O = g(O);  O += P @ V
    after:    S = Q @ K;  P = f(S);  O = g(O);  O += P @ V;  l = l + sum(S)
    """
    parts = _parts(pieces, asynchronous)
    if parts is None:
        return list(pieces)
    ahead, between, behind = parts
    stop = max(n for n, p in enumerate(behind) if p.place in asynchronous) + 1
    products, rest = behind[:stop], behind[stop:]
    needed: list[Piece] = []
    free: list[Piece] = []
    for piece in reversed(between):
        stays = piece.conditions or any(_conflict(piece, other, {}, roots) for other in (*needed, *products))
        (needed if stays else free).insert(0, piece)
    return [*ahead, *needed, *products, *free, *rest]


_Parts = tuple[Sequence[Piece], Sequence[Piece], Sequence[Piece]]


def _parts(pieces: Sequence[Piece], asynchronous: Collection[int]) -> _Parts | None:
    """The pieces up to the first products, from there to the products that wait for a use of their result, and the rest;
    None where no product does."""
    products = [n for n, p in enumerate(pieces) if p.place in asynchronous]
    if len(products) < 2:
        return None
    result = result_of(pieces[products[0]])
    uses = [n for n in range(products[0] + 1, len(pieces)) if n not in products and result in mentions(pieces[n])]
    later = [n for n in products if uses and n > uses[0]]
    if not later:
        return None
    start = max(n for n in products if n < uses[0]) + 1
    return pieces[:start], pieces[start : later[0]], pieces[later[0] :]


def _conflict(a: Piece, b: Piece, tiles: Mapping[Any, int], roots: Mapping[Any, Any]) -> bool:
    """Whether two pieces may not change places: one writes what the other touches."""
    root = lambda buffers: {roots.get(x, x) for x in buffers if x not in tiles}  # noqa: E731
    (reads, writes), (also_reads, also_writes) = touched(a.stmt), touched(b.stmt)
    mine, yours = root(reads | writes), root(also_reads | also_writes)
    return bool(root(writes) & yours or root(also_writes) & mine)
