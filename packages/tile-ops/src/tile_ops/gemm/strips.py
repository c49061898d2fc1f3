"""A product on a CPU by blocks that make some rows of C by many columns, tile after tile, of operands where they lie:
of halves, and of bytes in tile registers (`tile_ops.gemm_halves`, `tile_ops.gemm_pairs`), of float32 and other bytes by panels
(`tile_ops.gemm_panels`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.again import aligned, launched, offer
from tile_ops.gemm_halves import configs as halves
from tile_ops.gemm_halves.tile import Tile
from tile_ops.gemm_pairs import configs as pairs
from tile_ops.gemm_panels import configs as panels
from tile_ops.kernel import Resolved
from tile_ops.operator import Call

from .problem import ACTIVATIONS, GemmProblem

#: Roles of such kernels, and of those that write a anew for them first.
ROLES = ("halves", "pairs", "panels")
_BEFORE = ("turn", "split")


def multiply(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    repeat: int,
) -> None:
    """c = activation(a @ b + bias) by operands as the kernels take them; a transposed a of halves is turned first, one of pairs
    split."""
    if (before := _before(call)) is not None:
        rows = a.new_empty(_shape_before(call, a, c), dtype=torch.bfloat16)
        call[before](a, rows)
        a = rows
    call[_role(call)](a, b, bias, c, *numbers(call, c, repeat))


def _role(call: Call[GemmProblem]) -> str:
    return next(role for role in ROLES if role in call)


def _tile_of_halves(call: Call[GemmProblem]) -> Tile:
    has = call.numbers
    return Tile(has["block_m"], has["block_n"], has["block_k"], bool(has["at_once"]), bool(has["transposed"]))


def _before(call: Call[GemmProblem]) -> str | None:
    return next((role for role in _BEFORE if role in call), None)


def _shape_before(call: Call[GemmProblem], a: torch.Tensor, c: torch.Tensor) -> tuple[int, ...]:
    """What the kernel of `_before` makes of a, whose rows are c's: of groups, which share a call, each has its own number."""
    shape = pairs.split_shape if "split" in call else halves.turned_shape
    return shape(_tile_of_halves(call), a.shape[0], c.shape[1], call.problem.k)


def numbers(call: Call[GemmProblem], c: torch.Tensor, repeat: int) -> tuple[int, int, int]:
    """What kernels take beside their operands."""
    batch, m, n = c.shape
    threads = torch.get_num_threads()
    if "panels" in call:
        each = panels.panels_of_a_block(panels.Tile(**call.numbers), m, n, batch, threads)
    else:
        each = halves.tiles_of_a_block(_tile_of_halves(call), m, n, batch, threads)
    activation = None if "combine" in call or "scaled" in call else call.problem.activation
    return repeat, each, ACTIVATIONS.index(activation)


@dataclass(frozen=True)
class PreparedStrips:
    """The kernels of such a product, its shapes, strides and numbers fixed, for `threads` threads; `no_bias` stands for a bias
    where there is none. `before` writes a anew, in the shape `rows`."""

    product: Resolved
    no_bias: torch.Tensor | None
    threads: int
    before: Resolved | None = None
    rows: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        call: Call[GemmProblem],
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        c: torch.Tensor,
        repeat: int,
    ) -> PreparedStrips | None:
        """For operands as the kernels take them; None where an address is no multiple of ALIGNMENT, and where another kernel
        rounds the sums."""
        if "combine" in call or not aligned(a, b, c, bias):
            return None
        before: Resolved | None = None
        shape: tuple[int, ...] = ()
        others = numbers(call, c, repeat)
        if (role := _before(call)) is not None:
            shape = _shape_before(call, a, c)
            rows = a.new_empty(shape, dtype=torch.bfloat16)
            before, a = call[role].prepared(a, rows), rows
        no_bias = None if call.problem.bias else bias
        product = call[_role(call)].prepared(a, b, bias, c, *others)
        return cls(product, no_bias, torch.get_num_threads(), before, shape)

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor) -> bool:
        """Whether it could: computes c for operands of the first call's shapes, strides and types at any such address."""
        bias = self.no_bias if bias is None else bias
        if not self._same_threads() or not aligned(a, b, c, bias):
            return False
        temporary = []
        if self.before is not None:
            rows = a.new_empty(self.rows, dtype=torch.bfloat16)
            self.before(a, rows)
            launched(self.before, a, rows)
            temporary, a = [rows], rows
        self.product(a, b, bias, c)
        launched(self.product, a, b, bias, c)
        offer(c, temporary=temporary, still=self._same_threads)
        return True

    def _same_threads(self) -> bool:
        return torch.get_num_threads() == self.threads
