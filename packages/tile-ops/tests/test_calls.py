"""Every public operator has calls, and what they need is among the kernels that are shipped."""

from __future__ import annotations

import functools

import pytest

import tile_ops
from tile_ops.kernel import Target
from tile_ops.operator import _OPERATORS
from tile_ops.prebuild import ARCHS

from .calls import Call, calls


@functools.cache
def calls_for(kind: str) -> list[Call]:
    """Drawn once, when a test asks: some operands are large."""
    return list(calls("cpu", kind))


def test_every_public_operator_is_called():
    public = {getattr(tile_ops, name) for name in tile_ops.__all__}
    assert {call.operator for call in calls_for("cpu")} == {function for function in _OPERATORS if function in public}


@pytest.mark.parametrize(("kind", "arch"), [(kind, arch) for kind, archs in ARCHS.items() for arch in archs])
def test_plans_choose_among_the_shipped_kernels(kind, arch):
    target = Target(kind, arch)
    shipped = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    for call in calls_for(kind):
        operator, signature = _OPERATORS[call.operator]
        bound = signature.bind(*call.args, **call.kwargs)
        bound.apply_defaults()
        plan = operator.plan(operator.problem(**bound.arguments), target)
        missing = [str(spec) for _, spec in plan.kernels if spec not in shipped]
        assert not missing, f"{call.name} on {arch}"
