"""Macros that test_functions.py imports: their text, globals and lines are this file's."""

import tilelang.language as T

STEP = 10


@T.macro
def add_step(A, i, *, times=1):
    if A[i] > 0:
        A[i] = A[i] + STEP * times


@T.macro
def broken(A):
    A[0, 0] = 1


def plain_square(x):
    return x * x
