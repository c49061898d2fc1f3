"""A product on a CPU by blocks that make some rows of C by many columns, tile after tile, of operands where they lie:
of halves, and of bytes in tile registers (`tile_ops.gemm_halves`), of float32 and other bytes by panels
(`tile_ops.gemm_panels`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.again import aligned, launched, offer
from tile_ops.gemm_halves import configs as halves
from tile_ops.gemm_panels import configs as panels
from tile_ops.kernel import Resolved
from tile_ops.operator import Call

from .problem import ACTIVATIONS, GemmProblem

#: Roles of such kernels.
ROLES = ("halves", "panels")


def multiply(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    repeat: int,
) -> None:
    """c = activation(a @ b + bias) by operands as the kernels take them; a transposed a of halves is turned first."""
    if "turn" in call:
        turned = a.new_empty(_turned_shape(call))
        call["turn"](a, turned)
        a = turned
    call[_role(call)](a, b, bias, c, *numbers(call, c, repeat))


def _role(call: Call[GemmProblem]) -> str:
    return next(role for role in ROLES if role in call)


def _tile_of_halves(call: Call[GemmProblem]) -> halves.Tile:
    has = call.numbers
    return halves.Tile(has["block_m"], has["block_n"], has["block_k"], bool(has["at_once"]), bool(has["transposed"]))


def _turned_shape(call: Call[GemmProblem]) -> tuple[int, int, int]:
    return halves.turned_shape(_tile_of_halves(call), call.problem.m, call.problem.k)


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
    where there is none, `turned` is the shape of a turned a."""

    product: Resolved
    no_bias: torch.Tensor | None
    threads: int
    turn: Resolved | None = None
    turned: tuple[int, ...] = ()

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
        turn: Resolved | None = None
        shape: tuple[int, ...] = ()
        others = numbers(call, c, repeat)
        if "turn" in call:
            shape = _turned_shape(call)
            rows = a.new_empty(shape)
            turn, a = call["turn"].prepared(a, rows), rows
        no_bias = None if call.problem.bias else bias
        product = call[_role(call)].prepared(a, b, bias, c, *others)
        return cls(product, no_bias, torch.get_num_threads(), turn, shape)

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor) -> bool:
        """Whether it could: computes c for operands of the first call's shapes, strides and types at any such address."""
        bias = self.no_bias if bias is None else bias
        if not self._same_threads() or not aligned(a, b, c, bias):
            return False
        temporary = []
        if self.turn is not None:
            rows = a.new_empty(self.turned)
            self.turn(a, rows)
            launched(self.turn, a, rows)
            temporary, a = [rows], rows
        self.product(a, b, bias, c)
        launched(self.product, a, b, bias, c)
        offer(c, temporary=temporary, still=self._same_threads)
        return True

    def _same_threads(self) -> bool:
        return torch.get_num_threads() == self.threads
