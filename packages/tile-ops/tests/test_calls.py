"""Every public operator has calls, and what they need is among the kernels that are shipped."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tile_ops
from tile_ops.again import Again
from tile_ops.errors import WrongStride, WrongType
from tile_ops.gemm.configs import SHIPPED_FLOAT8
from tile_ops.kernel import Resolved, Target
from tile_ops.operator import _OPERATORS, Operator
from tile_ops.operator import Call as Resolving
from tile_ops.prebuild import ARCHS

from .calls import Call, Training, calls

#: Operators that take part in autocast: those that write an operand, take scales, or are a gradient do not.
AUTOCAST = """
    chunk_scan dequant_matmul flash_attention flash_attention_varlen flash_decode grouped_matmul layer_norm linear_attention
    matmul mla_decode mla_prefill rms_norm softmax ssd_scan ssd_step
""".split()

PUBLIC = [name for name in tile_ops.__all__ if getattr(tile_ops, name) in _OPERATORS]


def calls_for(kind: str, arch: str) -> list[Call]:
    """Drawn when a test asks, once for all architectures with the same types: some operands are large."""
    return _calls(kind, same_types(arch))


def same_types(arch: str) -> str:
    """The first architecture with these types."""
    return next((other for other in SHIPPED_FLOAT8 if SHIPPED_FLOAT8[other] == SHIPPED_FLOAT8.get(arch)), "")


@functools.cache
def _calls(kind: str, arch: str) -> list[Call]:
    return list(calls("cpu", kind, arch))


def test_every_public_operator_is_called():
    public = {getattr(tile_ops, name) for name in tile_ops.__all__}
    assert {call.operator for call in calls_for("cpu", "x86-64-v3")} == {
        function for function in _OPERATORS if function in public
    }


@pytest.mark.parametrize(("kind", "arch"), [(kind, arch) for kind, archs in ARCHS.items() for arch in archs])
def test_plans_choose_among_the_shipped_kernels(kind, arch):
    target = Target(kind, arch)
    shipped = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    for call in calls_for(kind, arch):
        operator, signature = _OPERATORS[call.operator]
        bound = signature.bind(*call.args, **call.kwargs)
        bound.apply_defaults()
        plan = operator.plan(operator.problem(**bound.arguments), target)
        missing = [str(spec) for _, spec in plan.kernels if spec not in shipped]
        assert not missing, f"{call.name} on {arch}"


class Nothing(Resolved):
    """A kernel that is not there."""

    def __call__(self, *arguments):
        pass

    def prepared(self, *arguments):
        return self


@functools.cache
def problems_of_training(kind: str, arch: str) -> list[tuple[str, Operator, object]]:
    """What the operators of each call and of its gradients are asked for; no kernel runs, and no call is remembered."""
    asked: list[tuple[str, Operator, object]] = []

    def call(operator, *args, **kwargs):
        found = Resolving(operator, *operator._checked(args, kwargs))
        asked.append((training.name, operator, found.problem))
        return found

    def kernels(call):
        plan = call._operator.plan(call.problem, call.target)
        return {role: Nothing(spec, call.target, "none", None) for role, spec in plan.kernels}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "call", call)
        patch.setattr(Resolving, "_kernels", property(kernels))
        patch.setattr(Resolving, "run", lambda *_, **__: None)
        patch.setattr(Again, "run", lambda _, function, arguments: function(*arguments))
        patch.setattr(Again, "replay", lambda *_: None)
        # Native code refuses the calls that it knows.
        patch.setattr(torch.autograd.profiler, "_is_profiler_enabled", True)
        for training in filter(None, map(Training.of, calls_for(kind, arch))):
            training.found()
    return asked


@pytest.mark.parametrize(("kind", "arch"), [(kind, arch) for kind, archs in ARCHS.items() for arch in archs])
def test_what_is_shipped_can_be_trained(kind, arch):
    target = Target(kind, arch)
    shipped = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    asked = problems_of_training(kind, same_types(arch))
    assert len({operator.name for _, operator, _ in asked if "backward" in operator.name}) >= 8
    for name, operator, problem in asked:
        missing = [str(spec) for _, spec in operator.plan(problem, target).kernels if spec not in shipped]
        assert not missing, f"{name} on {arch}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_gives_the_type_that_it_asks_for(name, dtype):
    """Operands of float32 and no kernel: what is tested is what operators make of types."""
    call = next(call for call in calls_for("cpu", "x86-64-v3") if call.operator is getattr(tile_ops, name))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.autocast("cpu", dtype):

        def operand(value):
            if not isinstance(value, torch.Tensor):
                return value
            fake = mode.from_tensor(value)
            return fake.float() if value.is_floating_point() else fake

        found = call.operator(*map(operand, call.args), **{key: operand(x) for key, x in call.kwargs.items()})
    assert (found[0] if isinstance(found, tuple) else found).dtype == dtype


class Reached(Exception):
    """A call came as far as its problem."""


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_explained_under_autocast_is_the_call_there(name, monkeypatch):
    call = next(call for call in calls_for("cpu", "x86-64-v3") if call.operator is getattr(tile_ops, name))

    def reach(operator, *args, **kwargs):
        raise Reached(operator.problem(*args, **kwargs))

    def operand(value):
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    args, kwargs = [operand(x) for x in call.args], {key: operand(x) for key, x in call.kwargs.items()}
    monkeypatch.setattr(Operator, "call", reach)
    with torch.autocast("cpu", torch.bfloat16):
        explained = tile_ops.explain(call.operator, *args, **kwargs).problem
        with pytest.raises(Reached) as reached:
            call.operator(*args, **kwargs)
    assert explained == reached.value.args[0]
    if name in AUTOCAST:
        assert "bfloat16" in repr(explained)


@pytest.mark.parametrize("name", PUBLIC)
def test_sparse_operands_are_named(name):
    call = next(call for call in calls_for("cpu", "x86-64-v3") if call.operator is getattr(tile_ops, name))
    bound = _OPERATORS[call.operator][1].bind(*call.args, **call.kwargs)
    for key, operand in bound.arguments.items():
        if isinstance(operand, torch.Tensor):
            text = re.escape(
                f"{name}: {key} has the layout torch.sparse_coo; a dense tensor is expected: {key}.to_dense()"
            )
            for function in (call.operator, functools.partial(tile_ops.explain, call.operator)):
                with pytest.raises(WrongStride, match=text):
                    function(**{**bound.arguments, key: operand.to_sparse()})


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_no_tensor_is_named(name):
    call = next(call for call in calls_for("cpu", "x86-64-v3") if call.operator is getattr(tile_ops, name))
    bound = _OPERATORS[call.operator][1].bind(*call.args, **call.kwargs)
    for key, operand in bound.arguments.items():
        if isinstance(operand, torch.Tensor):
            for other, kind in (([0.0], "a list"), (np.ones((4, 4)), "a numpy.ndarray"), (1.5, "a float")):
                text = re.escape(f"{name}: {key} is {kind}; a torch.Tensor is expected: torch.as_tensor({key})")
                for function in (call.operator, functools.partial(tile_ops.explain, call.operator)):
                    with pytest.raises(WrongType, match=text):
                        function(**{**bound.arguments, key: other})


def test_none_is_no_tensor_where_one_must_be_given():
    with pytest.raises(WrongType, match=re.escape("matmul: a is None; a torch.Tensor is expected: give one")):
        tile_ops.matmul(None, torch.eye(4))
    x = torch.eye(4, requires_grad=True)
    with pytest.raises(WrongType, match="matmul: b is a list"):
        tile_ops.matmul(x, [1.0])
    with pytest.raises(WrongType, match="quantize: weight is a list"):
        tile_ops.quantize([1.0], format="uint4", group_size=32)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_layouts_without_strides_are_named():
    x = torch.eye(4)
    for sparse in (x.to_sparse_csr(), x.to_sparse_csr().requires_grad_()):
        with pytest.raises(WrongStride, match=re.escape("matmul: b has the layout torch.sparse_csr; a dense tensor")):
            tile_ops.matmul(x, sparse)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_graph_holds_an_operator_whole(name):
    """As torch.compile(fullgraph=True) traces it, without a kernel: a break of the graph raises."""
    call = next(call for call in calls_for("cpu", "x86-64-v3") if call.operator is getattr(tile_ops, name))
    graph, _ = torch._dynamo.export(lambda *operands, **named: call.operator(*operands, **named))(
        *call.args, **call.kwargs
    )
    assert any(str(node.target).startswith("tile_ops.") for node in graph.graph.nodes if node.op == "call_function")
