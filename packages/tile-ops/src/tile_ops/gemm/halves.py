"""A product of halves on a CPU, where its operands lie (`tile_ops.gemm_halves`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.again import aligned, launched, offer
from tile_ops.gemm_halves.configs import Tile, tiles_of_a_block, turned_shape
from tile_ops.kernel import Resolved
from tile_ops.operator import Call

from .problem import ACTIVATIONS, GemmProblem


def multiply(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    repeat: int,
) -> None:
    """c = activation(a @ b + bias) by operands as the kernels take them; a transposed a is turned first."""
    if "turn" in call:
        turned = a.new_empty(turned_shape(_tile(call), call.problem.m, call.problem.k))
        call["turn"](a, turned)
        a = turned
    call["halves"](a, b, bias, c, *_numbers(call, c, repeat))


def _tile(call: Call[GemmProblem]) -> Tile:
    has = call.numbers
    return Tile(has["block_m"], has["block_n"], has["block_k"], bool(has["at_once"]), bool(has["transposed"]))


def _numbers(call: Call[GemmProblem], c: torch.Tensor, repeat: int) -> tuple[int, int, int]:
    batch, m, n = c.shape
    each = tiles_of_a_block(_tile(call), m, n, batch, torch.get_num_threads())
    return repeat, each, ACTIVATIONS.index(call.problem.activation)


@dataclass(frozen=True)
class PreparedHalves:
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
    ) -> PreparedHalves | None:
        """For operands as the kernels take them; None where an address is no multiple of ALIGNMENT."""
        if not aligned(a, b, c, bias):
            return None
        turn: Resolved | None = None
        shape: tuple[int, ...] = ()
        numbers = _numbers(call, c, repeat)
        if "turn" in call:
            shape = turned_shape(_tile(call), call.problem.m, call.problem.k)
            rows = a.new_empty(shape)
            turn, a = call["turn"].prepared(a, rows), rows
        no_bias = None if call.problem.bias else bias
        return cls(call["halves"].prepared(a, b, bias, c, *numbers), no_bias, torch.get_num_threads(), turn, shape)

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
