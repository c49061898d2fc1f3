"""Fingerprints of expressions: equal where two kernels compute one function, different or refused where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import terms
from device_texts import lowered
from mutants import predicate_mutants
from test_synchronization import product

import tilelang.language as T
from tilelang.interpreter.errors import InterpreterError


def function(body: Callable[[Any, Any, Any], Any]) -> Any:
    """One thread for each element: C = body(A, B, tx)."""

    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            C[tx] = body(A, B, tx)

    return main


def fingerprints(func: Any, seed: int = 0) -> Any:
    arguments = [np.zeros([int(n) for n in p.ty.shape], str(p.ty.dtype)) for p in func.params]
    return terms.outputs(lowered(func)[0].steps[-1].after, terms.random_inputs(arguments, seed))[0]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (lambda A, B, t: A[t] + B[t], lambda A, B, t: B[t] + A[t], True),
        (lambda A, B, t: T.max(A[t], B[t]), lambda A, B, t: T.max(B[t], A[t]), True),
        (lambda A, B, t: A[t] - B[t], lambda A, B, t: B[t] - A[t], False),
        (lambda A, B, t: A[t] + B[t], lambda A, B, t: A[t] * B[t], False),
        (lambda A, B, t: A[t], lambda A, B, t: A[t] + T.float32(0) * B[t], False),
        (lambda A, B, t: T.exp(A[t]), lambda A, B, t: T.exp(A[t ^ 1]), False),
        (
            lambda A, B, t: T.if_then_else(A[t] < B[t], A[t], B[t]),
            lambda A, B, t: T.if_then_else(A[t] < B[t], B[t], A[t]),
            False,
        ),
        (lambda A, B, t: T.cast(T.cast(A[t], "float16"), "float32"), lambda A, B, t: A[t], False),
    ],
)
def test_functions(one: Any, other: Any, equal: bool) -> None:
    same = [terms.same(fingerprints(function(one), seed), fingerprints(function(other), seed)) for seed in range(3)]
    assert same == [equal] * 3


def test_a_product_depends_on_each_factor(lower: Any) -> None:
    final = lower(product(32, 32, 48, 2, (32, 32, 16), 32))[0].steps[-1].after
    inputs = terms.random_inputs(
        [np.zeros((32, 48), "float16"), np.zeros((48, 32), "float16"), np.zeros((32, 32), "float32")], 1
    )
    before = terms.outputs(final, inputs)[0][2]
    inputs[0][3, 40] = 0
    inputs[1][7, 5] = 0
    changed = np.argwhere(terms.outputs(final, inputs)[0][2].view("uint32") != before.view("uint32"))
    assert {tuple(c) for c in changed.tolist()} == {(3, n) for n in range(32)} | {(m, 5) for m in range(32)}


@pytest.mark.parametrize("everybody", [False, True])
def test_threads_that_write_different_expressions_to_one_place(lower: Any, everybody: bool) -> None:
    """Without the predicate, all threads write the first element: a sum that all have, or their own."""

    @T.prim_func
    def first(A: T.Tensor((32,), "float32"), S: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            if tx == 0:
                S[0] = A[3] * T.float32(2) if everybody else A[tx]

    final = lower(first)[0].steps[-1].after
    ((mutant, _),) = predicate_mutants(final)
    inputs = terms.random_inputs([np.zeros(32, "float32"), np.zeros(1, "float32")], 0)
    if everybody:
        assert terms.same(terms.outputs(mutant, inputs)[0], terms.outputs(final, inputs)[0])
    else:
        with pytest.raises(InterpreterError, match="race on"):
            terms.outputs(mutant, inputs)
