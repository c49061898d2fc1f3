"""The cases lie in a package of their own beside the tests; a kernel is built in two ways."""

import sys
from pathlib import Path

import pytest

import tilelang

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["interpret", "device"])
def execution(request):
    return request.param


@pytest.fixture
def build(execution):
    """`build(func, out_idx=...)`: a kernel that is interpreted, or compiled for the CPU."""
    return lambda func, **options: tilelang.compile(func, target="cpu", execution=execution, **options)


@pytest.fixture
def jit(execution):
    return lambda func, **options: tilelang.jit(func, target="cpu", execution=execution, **options)
