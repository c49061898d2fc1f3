"""Calls that come again: their kernels take the operands as they are given, without the views that describe them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from tile_ops.again import ALIGNMENT, aligned, launched, offer
from tile_ops.kernel import Resolved
from tile_ops.operator import Call

from .operands import memory_of_transposed
from .problem import ACTIVATIONS, GemmProblem, still_rounded

#: Roles of kernels that are all of a plan, with what their tensors are beside a, b, the bias and the result.
_TENSORS = {"product": (2, 1), "staying": (2, 0), "gemv": (0, 0), "direct": (0, 0)}
#: Roles of kernels that copy an operand, a or b, before the others of a plan.
TURNS = ("transpose_a", "transpose_b")


def along_k(call: Call[GemmProblem], a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands as the product's kernel takes them: (batch, m, k) and (batch, n, k) where the call copies one of them."""
    found = [a, b]
    for number, turns in enumerate(TURNS):
        if turns in call:
            x = found[number]
            found[number] = memory_of_transposed(x)[:, :, : x.shape[1]]
            call[turns](x, found[number])
    return found[0], found[1]


@dataclass(frozen=True)
class Prepared:
    """The kernel of a call, its shapes, strides and numbers fixed. It is given `before` unused tensors before the bias and
    `after` of them behind it; `no_bias` stands for a bias where there is none.

    If `adds` is there, the kernel gives parts, of the shape `parts`, which that one adds: of all of the result, or `some` of it,
    and makes the others itself. If there is a `transpose`, it copies operand number `which` into memory of the shape `turned`,
    where it lies along k.
    """

    kernel: Resolved
    before: tuple[None, ...]
    after: tuple[None, ...]
    no_bias: torch.Tensor | None
    adds: Resolved | None = None
    parts: tuple[int, ...] = ()
    some: bool = False
    still: Callable[[], bool] | None = None
    transpose: Resolved | None = None
    which: int = 0
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
    ) -> Prepared | None:
        """For operands as the kernel takes them; None for calls of other kernels, with scales or of gradients, and where an
        address is no multiple of ALIGNMENT."""
        role = next((role for role in _TENSORS if role in call), None)
        in_parts = "parts" in call and not any(turns in call for turns in TURNS)
        if call.problem.scales or call.problem.gradient or not aligned(a, b, c, bias) or not (role or in_parts):
            return None
        no_bias, activation = None if call.problem.bias else bias, ACTIVATIONS.index(call.problem.activation)
        rounds = call.target.kind != "cpu" and call.problem.dtype == "float32"
        still = partial(still_rounded, call.problem.tf32) if rounds else None
        if role is None:
            kernel, adds, shape = _in_parts(call, a, b, bias, c, activation)
            return cls(kernel, (), (), no_bias, adds, shape, "finish" in call, still)
        transpose, which, turned = None, 0, ()
        for number, turns in enumerate(TURNS):
            if turns in call:
                given = (a, b)[number]
                memory = memory_of_transposed(given)
                copy = memory[:, :, : given.shape[1]]
                transpose, which, turned = call[turns].prepared(given, copy), number, memory.shape
                a, b = (a, copy) if number else (copy, b)
        before, after = ((None,) * count for count in _TENSORS[role])
        numbers = (*([repeat] if role in ("product", "direct") else []), activation)
        kernel = call[role].prepared(a, b, *before, bias, *after, c, *numbers)
        return cls(kernel, before, after, no_bias, still=still, transpose=transpose, which=which, turned=turned)

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor) -> bool:
        """Whether it could: computes c for operands of the first call's shapes, strides and types at any such address."""
        temporary = self.launch(a, b, bias, c)
        if temporary is None:
            return False
        offer(c, temporary=temporary, still=self.still)
        return True

    def launch(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor
    ) -> list[torch.Tensor] | None:
        """The same; what it allocated, or None if it could not."""
        if bias is None:
            bias = self.no_bias
            if (a.data_ptr() | b.data_ptr() | c.data_ptr()) % ALIGNMENT:
                return None
        elif not aligned(a, b, c, bias):
            return None
        temporary = []
        if self.transpose is not None:
            given = (a, b)[self.which]
            copy = given.new_empty(self.turned)
            self.transpose(given, copy)
            launched(self.transpose, given, copy)
            temporary, a, b = [copy], *((a, copy) if self.which else (copy, b))
        if self.adds is None:
            self.kernel(a, b, *self.before, bias, *self.after, c)
            launched(self.kernel, a, b, *self.before, bias, *self.after, c)
        else:
            parts = c.new_empty(self.parts, dtype=torch.float32)
            given = (a, b, bias, parts, c) if self.some else (a, b, parts)
            self.kernel(*given)
            self.adds(parts, bias, c)
            launched(self.kernel, *given)
            launched(self.adds, parts, bias, c)
            temporary = [parts]
        return temporary


def _in_parts(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    activation: int,
) -> tuple[Resolved, Resolved, tuple[int, ...]]:
    """The kernel that gives parts, the one that adds them, and their shape."""
    numbers = call.numbers
    shape: tuple[int, ...]
    if "combine" in call:
        shape = (numbers["splits"], *c.shape[1:])
        parts = c.new_empty(shape, dtype=torch.float32)
        kernel = call["parts"].prepared(a, b, parts, numbers["steps"])
        return kernel, call["combine"].prepared(parts, bias, c, activation), shape
    whole, pieces = numbers["whole"], numbers["parts"]
    shape = (numbers["pieces"], numbers["block_m"], numbers["block_n"])
    parts = c.new_empty(shape, dtype=torch.float32)
    kernel = call["parts"].prepared(a, b, bias, parts, c, whole, pieces, numbers["steps"], activation)
    return kernel, call["finish"].prepared(parts, bias, c, whole, pieces, activation), shape
