"""Gradients of linear attention agree with autograd through the recurrence in float64."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.kernel import Target
from tile_ops.kernel.target import SHARED_MEMORY
from tile_ops.linear_attention import reference
from tile_ops.linear_attention.problem import AttentionProblem
from tile_ops.linear_attention_backward.api import LINEAR_ATTENTION_BACKWARD, linear_attention_backward
from tile_ops.linear_attention_backward.configs import plan
from tile_ops.linear_attention_backward.reference import TOLERANCES
from tile_ops.state_space.problem import Model

KINDS = ["none", "head", "token", "channel"]
full = pytest.mark.full


def operands(
    kind,
    seqlen,
    *,
    heads=2,
    heads_k=2,
    dim_k=32,
    dim_v=32,
    batch=1,
    sequences=None,
    dtype=torch.float32,
    decay_dtype=None,
):
    """q, k, v, a decay of the kind, initial states."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    q, k, v = (normal(batch, seqlen, *shape) for shape in ((heads_k, dim_k), (heads_k, dim_k), (heads, dim_v)))
    found = {"q": q, "k": k, "v": v, "initial_state": normal(sequences or batch, heads, dim_v, dim_k)}
    decays = {
        "head": -torch.rand(heads, generator=generator) / 8,
        "token": -torch.rand(batch, seqlen, heads, generator=generator) / 4,
        "channel": -8 * torch.rand(batch, seqlen, heads, dim_k, generator=generator) ** 4,
    }
    return found if kind == "none" else {**found, "decay": decays[kind].to(decay_dtype or torch.float32)}


def gradients(attention, values, dtype=None, through=(True, True), **options):
    """By name, of a sum of the outputs and the last states (`through` says which) with random weights."""
    values = {name: value.detach().to(dtype or value.dtype).requires_grad_() for name, value in values.items()}
    results = attention(**values, **options)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator).to(torch.float16).to(t.dtype) for t in results]
    sum((result * weight).sum() for result, weight, used in zip(results, weights, through) if used).backward()
    return {name: value.grad for name, value in values.items()}


def ours(**operands):
    return tile_ops.linear_attention(**operands, return_final_state=True)


def agree(values, close, **options):
    found = gradients(ours, values, **options)
    expected = gradients(reference.linear_attention, values, torch.float64, **options)
    tolerance = TOLERANCES[str(values["v"].dtype).removeprefix("torch.")]
    for name, gradient in found.items():
        assert gradient.dtype == values[name].dtype, name
        wanted = expected[name]  # None where the results that count do not depend on the operand
        close(gradient, torch.zeros_like(gradient) if wanted is None else wanted, tolerance)


@pytest.mark.parametrize("seqlen", [1, 64, 70, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_recurrence(close, kind, seqlen):
    """Less than a chunk or a block of tokens, whole ones, and more; dimensions that fill no tile."""
    agree(operands(kind, seqlen, batch=2, dim_k=24, dim_v=40), close)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_have_states_of_their_own(close, kind):
    ends = torch.tensor([0, 0, 20, 20, 90, 91])  # int64 is converted
    agree(operands(kind, 91, sequences=5, dim_k=24, dim_v=40), close, cu_seqlens=ends, scale=0.5)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_heads_that_share_keys(close, kind):
    agree(operands(kind, 70, heads=6, heads_k=2, batch=2), close)


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=full)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(close, kind, dtype):
    """With decays of that type."""
    agree(operands(kind, 130, dim_k=64, dim_v=48, dtype=dtype, decay_dtype=dtype), close)


@pytest.mark.parametrize("kind", [pytest.param("token", marks=full), "channel"])
def test_large_dimensions(close, kind):
    agree(operands(kind, 70, heads=1, heads_k=1, dim_k=256, dim_v=136), close)


@pytest.mark.parametrize("scale", [0.0, -2.0])
@pytest.mark.parametrize("kind", ["head", "channel"])
def test_any_scale(close, kind, scale):
    agree(operands(kind, 70), close, scale=scale)


@pytest.mark.parametrize("through", [(True, False), (False, True)], ids=["outputs", "last states"])
@pytest.mark.parametrize("kind", ["token", "channel"])
def test_results_of_which_one_counts(close, kind, through):
    values = operands(kind, 70)
    agree(values, close, through=through)
    del values["initial_state"]
    agree(values, close, through=through)


@pytest.mark.parametrize("kind", ["head", "channel"])
def test_decays_that_leave_nothing(close, kind):
    """exp(-1000) is 0: sums of decays are large, and what they are taken the exponent of is never positive."""
    values = operands(kind, 70)
    values["decay"] = torch.full_like(values["decay"], -1000.0)
    found = gradients(ours, values)
    expected = gradients(reference.linear_attention, values, torch.float64)
    for name in "qkv":
        close(found[name], expected[name], TOLERANCES["float32"])
    assert not found["initial_state"].any()
    terms = (values["q"] * expected["q"]).abs().max()  # what cancels in the gradient of a decay, which is 0
    assert found["decay"].abs().max() <= TOLERANCES["float32"] * terms


@pytest.mark.parametrize(
    "target",
    ["cuda -arch=sm_80", pytest.param("cuda -arch=sm_90a", marks=full), pytest.param("hip -mcpu=gfx942", marks=full)],
)
@pytest.mark.parametrize("kind", [pytest.param("token", marks=full), "channel"])
def test_on_tensor_cores(close, run_as, kind, target):
    """Packed, so that where a chunk begins is read."""
    run_as(target)
    heads = 1 if kind == "channel" else 2
    values = operands(kind, 70, sequences=3, heads=heads, heads_k=1, dim_k=16, dim_v=40, dtype=torch.float16)
    agree(values, close, cu_seqlens=torch.tensor([0, 0, 66, 70]))


@full
@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "cuda -arch=sm_90a", "hip -mcpu=gfx942"])
@pytest.mark.parametrize("kind", ["head", "channel"])
def test_on_tensor_cores_with_the_dimensions_of_models(close, run_as, kind, target):
    """On gfx942 parts of states and 32 tokens are all that shared memory holds."""
    run_as(target)
    agree(operands(kind, 70, heads=1, heads_k=1, dim_k=128, dim_v=128, dtype=torch.bfloat16), close)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_same_in_every_run(kind):
    """Kernels are prepared in the second one, and asked for nothing but addresses behind it."""
    ends = torch.tensor([0, 70, 70, 150], dtype=torch.int32)
    values = operands(kind, 150, sequences=3)
    first, *others = (gradients(ours, values, cu_seqlens=ends) for _ in range(4))
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_empty(kind):
    for sizes in ({"seqlen": 0}, {"seqlen": 5, "batch": 0}, {"seqlen": 5, "heads": 0, "heads_k": 0}):
        values = operands(kind, **sizes)
        found = gradients(ours, values)
        assert all(found[name].shape == value.shape for name, value in values.items())
        if not sizes["seqlen"]:  # the last states are the initial ones
            generator = torch.Generator().manual_seed(1)
            weight = torch.randn(values["initial_state"].shape, generator=generator).half()
            assert torch.equal(found["initial_state"], weight.float())
        if kind == "head":
            assert not found["decay"].any()


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_torch_operator(kind):
    values = operands(kind, 20)
    q, k, v, decay, initial = (values.get(name) for name in ("q", "k", "v", "decay", "initial_state"))
    o, final = torch.ones_like(v), torch.ones_like(initial)
    for dfinal in (final, None):
        operands_of_gradients = (o, q, k, v, decay, initial, None, dfinal, 0.5)
        torch.library.opcheck(torch.ops.tile_ops.linear_attention_backward.default, operands_of_gradients)
    for value in values.values():
        value.requires_grad_()
    torch.library.opcheck(torch.ops.tile_ops.linear_attention.default, (q, k, v, decay, initial, None, 0.5))


@pytest.mark.parametrize(
    ("kind", "initial"),
    [
        pytest.param(kind, initial, marks=full if initial and kind in ("head", "token") else ())
        for kind in KINDS
        for initial in (False, True)
    ],
)
def test_gradients_come_again(kind, initial, monkeypatch, close):
    """Other operands of a shape: native code knows the call."""
    for turn in range(6):
        values = {name: x + turn / 8 for name, x in operands(kind, 20).items() if name in ("q", "k", "v")}
        kept = ("decay", "initial_state") if initial else ("decay",)
        values |= {name: x for name, x in operands(kind, 20).items() if name in kept}
        leaves = {name: x.clone().requires_grad_() for name, x in values.items()}
        do = torch.randn_like(values["v"])
        o = ours(**leaves)[0]
        if turn == 4:  # the first one prepares, the third one is kept
            monkeypatch.setattr(
                linear_attention_backward.again, "run", lambda *_: pytest.fail("the implementation was asked")
            )
        found = torch.autograd.grad(o, list(leaves.values()), do)
        exact = {name: x.double().requires_grad_() for name, x in values.items()}
        expected = torch.autograd.grad(reference.linear_attention(**exact)[0], list(exact.values()), do.double())
        for one, other in zip(found, expected):
            close(one, other, TOLERANCES["float32"])


def test_more_zeros_than_are_kept(monkeypatch):
    """For the gradient of the last states: made anew in each call."""
    values = {name: x for name, x in operands("none", 20).items() if name != "initial_state"}
    expected = gradients(ours, values, through=(True, False))
    linear_attention_backward.again.forget()
    monkeypatch.setattr("tile_ops.constants.MOST_ZEROS", 39)
    for _ in range(4):
        found = gradients(ours, values, through=(True, False))
        assert all(torch.equal(found[name], expected[name]) for name in values)


@pytest.mark.cpu("traced with the tensors of the CPU")
@pytest.mark.parametrize("kind", KINDS)
def test_compiles_as_one_graph(kind):
    leaves = {name: value.requires_grad_() for name, value in operands(kind, 20).items()}
    o, final = torch.ones_like(leaves["v"]), torch.ones_like(leaves["initial_state"])
    compiled = torch.compile(lambda operands: ours(**operands), fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(leaves), list(leaves.values()), (o, final))
    expected = torch.autograd.grad(ours(**leaves), list(leaves.values()), (o, final))
    assert all(map(torch.equal, found, expected))


@pytest.mark.cpu("the gradient is called by itself")
@pytest.mark.parametrize("kind", KINDS)
def test_our_kernels_make_them(kind):
    values = operands(kind, 90, sequences=2)
    options = {name: values.get(name) for name in ("decay", "initial_state")}
    options["cu_seqlens"] = torch.tensor([0, 50, 90], dtype=torch.int32)
    call = [values[name] for name in "qkv"]
    before = LINEAR_ATTENTION_BACKWARD.explain(*call, **options)
    gradients(ours, values, cu_seqlens=options["cu_seqlens"])
    after = LINEAR_ATTENTION_BACKWARD.explain(*call, **options)
    assert all(new.launches > old.launches for old, new in zip(before.kernels, after.kernels))
    own = {kernel.spec.function for kernel in after.kernels if kernel.spec.family == "linear_attention_backward"}
    assert (
        own
        == {
            "none": {"scaled"},
            "head": {"scaled", "decays_backward"},
            "token": {"scaled", "decays_backward"},
            "channel": {
                "gate_sums",
                "gated_chunk_state",
                "gated_pass_states",
                "queries_backward",
                "keys_values_backward",
                "gates_backward",
            },
        }[kind]
    )


@pytest.mark.cpu("plans")
@pytest.mark.parametrize(
    "target", [Target("cpu", "x86-64-v3"), *(Target("cuda", a) for a in ("sm_80", "sm_90a"))], ids=str
)
@pytest.mark.parametrize("kind", ["none", "token", "channel"])
def test_what_is_shipped_makes_them(target, kind):
    known = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    problem = AttentionProblem(Model("bfloat16", 64, 128, 128, heads_per_group=1), kind, "float32", False, False)
    assert {spec for _, spec in plan(problem, target).kernels} <= known


@pytest.mark.cpu("plans")
@pytest.mark.parametrize("arch", sorted(SHARED_MEMORY))
def test_tiles_get_smaller_where_shared_memory_is_small(arch):
    """128 channels fit everywhere; where 64 tokens and a whole state do, these are taken."""
    target = Target("hip" if arch.startswith("gfx") else "cuda", arch)
    tiles = {}
    for dtype in ("bfloat16", "float32"):
        problem = AttentionProblem(Model(dtype, 64, 128, 128, heads_per_group=1), "token", "float32", False, False)
        spec = dict(plan(problem, target).kernels)["keys"]
        arguments = dict(spec.arguments)
        tiles[dtype] = arguments["block"], arguments["part"]
    expected = {
        "sm_80": {"bfloat16": (64, 128), "float32": (64, 32)},
        "sm_86": {"bfloat16": (64, 64), "float32": (32, 32)},
        "sm_89": {"bfloat16": (64, 64), "float32": (32, 32)},
        "sm_90a": {"bfloat16": (64, 128), "float32": (64, 128)},
        "gfx942": {"bfloat16": (32, 64), "float32": (16, 32)},
    }
    assert tiles == expected[arch]


def test_a_cpu_computes_few_tokens_that_are_not_there():
    """16 tokens at a time by small states, 32 by others, whatever a sequence has of them; a GPU 64."""

    def blocks(dim, target):
        problem = AttentionProblem(Model("float32", 64, dim, dim, heads_per_group=1), "token", "float32", False, False)
        kernels = dict(plan(problem, target).kernels)
        return {dict(kernels[role].arguments)["block"] for role in ("values", "queries", "keys")}

    cpu = Target("cpu", "x86-64-v4")
    assert blocks(64, cpu) == {16}
    assert blocks(72, cpu) == {32}
    assert blocks(64, Target("cuda", "sm_90a")) == {64}
