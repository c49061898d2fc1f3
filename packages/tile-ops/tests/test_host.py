"""What a call works out once: the problem, the plan, the launchers' complete check; and how operators meet autograd."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

import tile_ops
from tile_ops import registration
from tile_ops.again import Again
from tile_ops.errors import WrongDevice
from tile_ops.gemm.api import MATMUL
from tile_ops.normalization.api import RMS_NORM, rms_norm_operation, softmax_operation
from tile_runtime.binding import Binder

X, WEIGHT = torch.randn(4, 64), torch.randn(64)
HEADS = torch.randn(1, 3, 2, 16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tile_ops.matmul(X, X.T),
        lambda: tile_ops.matmul(X, X.T, bias=WEIGHT[:4], activation="relu"),
        lambda: tile_ops.rms_norm(X, WEIGHT),
        lambda: tile_ops.layer_norm(X),
        lambda: tile_ops.flash_attention(HEADS, HEADS, HEADS, causal=True),
        lambda: tile_ops.flash_attention(HEADS, HEADS, HEADS, sinks=WEIGHT[:2]),
    ],
    ids=["matmul", "matmul with bias", "rms_norm", "layer_norm", "flash_attention", "flash_attention with sinks"],
)
def test_an_equal_call_is_checked_once(call, monkeypatch):
    expected = call()
    call()  # the second one of a product prepares the next ones
    for operator in (MATMUL, RMS_NORM):
        monkeypatch.setattr(operator, "problem", lambda *_, **__: pytest.fail("the problem was made again"))
    monkeypatch.setattr(Binder, "bind", lambda *_: pytest.fail("a launcher did not recognise the call"))
    assert torch.equal(call(), expected)


@pytest.mark.parametrize("mixed", ["first", "last"])
def test_operands_on_several_devices_are_refused(mixed):
    """torch takes a call on "meta" and another device for one on "meta" and returns memory of the other that nothing wrote."""
    there = {"first": (X.to("meta"), X.T), "last": (X, X.T.to("meta"))}[mixed]
    with pytest.raises(WrongDevice, match=r"^matmul: the operands lie on (cpu and meta|meta and cpu)"):
        tile_ops.matmul(*there)
    with pytest.raises(WrongDevice, match=r"^matmul: the operands lie on"):
        tile_ops.explain(tile_ops.matmul, *there)
    assert tile_ops.matmul(X.to("meta"), X.T.to("meta")).shape == (4, 4)


def test_settings_outside_of_the_arguments_count(monkeypatch):
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            assert MATMUL.call(X, X.T).problem.tf32 is allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "hip -mcpu=gfx942")
    assert MATMUL.call(X, X.T).target.arch == "gfx942"


def test_calls_are_forgotten_when_there_are_many(monkeypatch):
    monkeypatch.setattr("tile_ops.operator.CALLS", 2)
    calls = [RMS_NORM.call(torch.ones(rows, 8), torch.ones(8)) for rows in range(1, 6)]
    assert [call.problem.rows for call in calls] == [1, 2, 3, 4, 5]
    assert len(RMS_NORM._calls) <= 2


def test_an_operator_without_backward_says_so():
    B, steps = torch.randn(1, 16, 1, 32).requires_grad_(), torch.rand(1, 1, 1, 64)
    y = tile_ops.chunk_state(B, B.detach(), steps, -steps)
    with pytest.raises(RuntimeError, match="tile_ops::chunk_state has no backward"):
        y.sum().backward()
    with torch.no_grad():
        assert not tile_ops.chunk_state(B, B.detach(), steps, -steps).requires_grad


def test_a_product_into_a_tensor_is_seen_by_autograd():
    out = torch.empty(4, 4)
    tile_ops.matmul(X, X.T, out=out)
    assert out._version == 1
    with pytest.raises(RuntimeError, match="matmul_out writes an operand"):
        tile_ops.matmul(X.clone().requires_grad_(), X.T, out=out)
    with torch.inference_mode():
        kept = torch.empty(4, 4)
        assert torch.equal(tile_ops.matmul(X, X.T, out=kept), out)


def test_other_devices_are_refused_by_name():
    with pytest.raises(tile_ops.errors.WrongDevice, match="cpu and cuda"):
        RMS_NORM.call(X.to("meta"), WEIGHT.to("meta"))


def test_an_eager_call_without_anything_between_goes_by_torch(monkeypatch):
    def refuse(*_):
        pytest.fail("the dispatcher was asked")

    weight = torch.nn.Parameter(WEIGHT.clone())
    with torch.no_grad():
        expected = tile_ops.rms_norm(X, weight)
    monkeypatch.setattr(rms_norm_operation, "_overload", refuse)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert torch.equal(tile_ops.rms_norm(X, weight), expected)


def test_what_stands_between_a_call_and_its_implementation_is_asked():
    expected = X.double() / (X.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * WEIGHT.double()
    negative = torch.complex(X, -X).conj().imag  # a view: memory holds -X, and torch notes that it means X
    assert negative.is_neg()
    torch.testing.assert_close(tile_ops.rms_norm(negative, WEIGHT).double(), expected, rtol=1e-5, atol=1e-5)
    nothing = torch._efficientzerotensor((4, 64))  # has no memory at all
    assert torch.equal(tile_ops.rms_norm(nothing, WEIGHT), torch.zeros(4, 64))
    with torch.profiler.profile() as profile:
        tile_ops.rms_norm(X, WEIGHT)
    assert "tile_ops::rms_norm" in {event.key for event in profile.key_averages()}
    with torch.autocast("cpu", torch.bfloat16):
        assert tile_ops.rms_norm(X, WEIGHT).dtype == torch.bfloat16
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        assert type(tile_ops.rms_norm(X, WEIGHT)) is not torch.Tensor


#: torch's own use of what it has deprecated, at the first vmap of a process.
SCRIPT = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def test_what_a_mode_puts_in_the_place_of_an_operand_may_require_gradients():
    weight = WEIGHT.clone().requires_grad_()

    class Replaced(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*(weight if x is WEIGHT else x for x in args), **(kwargs or {}))

    with Replaced():
        found = tile_ops.rms_norm(X, WEIGHT)
    (gradient,) = torch.autograd.grad(found.sum(), weight)
    assert torch.equal(gradient, torch.autograd.grad(tile_ops.rms_norm(X, weight).sum(), weight)[0])


def test_a_call_that_autograd_records_goes_by_torch_s_dispatcher(monkeypatch):
    x, dy = X.clone().requires_grad_(), torch.randn(4, 64)
    (expected,) = torch.autograd.grad(torch.ops.tile_ops.softmax(x, -1), x, dy)  # the dispatcher's way

    def refuse(*_):
        pytest.fail("the dispatcher or the implementation was asked")

    def gradient():
        y = tile_ops.softmax(x)
        assert y.grad_fn.name() == "tile_ops_softmaxBackward"
        return torch.autograd.grad(y, x, dy)[0]

    assert all(torch.equal(gradient(), expected) for _ in range(4))
    monkeypatch.setattr(softmax_operation, "_overload", refuse)
    monkeypatch.setattr(Again, "run", refuse)
    monkeypatch.setattr(Again, "replay", refuse)
    assert torch.equal(gradient(), expected)


def test_calls_that_autograd_records_and_native_code_does_not_know_are_not_begun_for_ever(monkeypatch):
    x = X.clone().requires_grad_()
    expected, begun = tile_ops.softmax(x.detach()), []

    def begin(*_):
        begun.append(1)
        raise registration._Unknown

    monkeypatch.setattr(softmax_operation, "_missed", 0)
    with monkeypatch.context() as unknown:
        unknown.setattr(softmax_operation, "_known", begin)
        unknown.setattr(softmax_operation.again, "call", lambda *_: None)
        for _ in range(2 * registration.MOST_MISSED):
            y = tile_ops.softmax(x)
            assert torch.equal(y, expected)
            assert y.grad_fn is not None
    assert len(begun) == registration.MOST_MISSED
    for _ in range(4):  # one that is known is enough
        tile_ops.softmax(x)
    assert softmax_operation._missed == 0


def test_what_autograd_offers_sees_recorded_calls():
    x = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(tile_ops.softmax(x).square().sum(), x)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or len(packed) - 1, packed.__getitem__):
        y = tile_ops.softmax(x)
    assert [t is y or torch.equal(t, y) for t in packed] == [True]
    assert torch.equal(torch.autograd.grad(y.square().sum(), x)[0], expected)
    again = torch.utils.checkpoint.checkpoint(tile_ops.softmax, x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(again.square().sum(), x)[0], expected)
    (gradient,) = torch.autograd.grad(tile_ops.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no backward"):
        gradient.sum().backward()
    kept = tile_ops.softmax(x)
    kept.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


@pytest.mark.parametrize("times", [1, 4])
def test_a_recorded_result_may_be_changed(times):
    """Also one that the implementation returns as a view."""
    x, weight = torch.randn(1, 64).requires_grad_(), WEIGHT.clone().requires_grad_()
    for _ in range(times):
        y, z = tile_ops.softmax(x, dim=0), tile_ops.rms_norm(x, weight)
        y.mul_(2), z.mul_(2)
        (dweight,) = torch.autograd.grad(z.sum(), weight)  # softmax has kept its result, which is another now
    assert torch.equal(y, torch.full((1, 64), 2.0))
    torch.testing.assert_close(dweight, 2 * (x / (x.square().mean() + 1e-6).sqrt())[0].detach())


def rms_norm(x, weight):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def attention(q):
    return torch.nn.functional.scaled_dot_product_attention(*[x.movedim(1, 2) for x in (q, q, q)]).movedim(1, 2)


FUNCTIONS = {
    "rms_norm": (lambda x: tile_ops.rms_norm(x, WEIGHT), lambda x: rms_norm(x, WEIGHT), X),
    "layer_norm": (lambda x: tile_ops.layer_norm(x, WEIGHT), lambda x: torch.layer_norm(x, (64,), WEIGHT), X),
    "softmax": (tile_ops.softmax, lambda x: x.softmax(-1), X),
    "matmul": (
        lambda x: tile_ops.matmul(x, X.T, bias=WEIGHT[:4], activation="silu"),
        lambda x: torch.nn.functional.silu(x @ X.T + WEIGHT[:4]),
        X,
    ),
    "flash_attention": (lambda q: tile_ops.flash_attention(q, q, q), attention, HEADS),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:.*implemented the batching rule for aten")
def test_transforms_of_functions(name):
    """`torch.func`, which refuses the functions that `torch.library.register_autograd` makes."""
    ours, torchs, x = FUNCTIONS[name]
    for function in (
        lambda f: torch.func.grad(lambda x: f(x).square().sum())(x),
        lambda f: torch.func.vjp(f, x)[1](torch.ones_like(f(x)))[0],
        lambda f: torch.vmap(lambda one: f(one[None])[0])(x),
        lambda f: torch.vmap(torch.func.grad(lambda one: f(one[None]).square().sum()))(x),
        lambda f: torch.func.jacrev(f)(x[:1]),
        lambda f: torch.func.grad(lambda x: torch.vmap(lambda one: f(one[None])[0])(x).square().sum())(x),
    ):
        torch.testing.assert_close(function(ours), function(torchs), rtol=1e-4, atol=1e-4)


def test_vmap_over_nothing_and_results_of_several_tensors():
    def attend(q):
        return tile_ops.flash_attention(q[None], q[None], q[None], return_lse=True)

    q = torch.randn(3, 2, 4, 16)
    for found, expected in zip(
        torch.vmap(attend, in_dims=2)(q.movedim(0, 2)), tile_ops.flash_attention(q, q, q, return_lse=True)
    ):
        torch.testing.assert_close(found[:, 0], expected)
    with pytest.raises(ValueError, match="softmax: torch.vmap over a dimension of size 0"):
        torch.vmap(tile_ops.softmax)(torch.empty(0, 4, 8))


def test_gradients_of_each_sample():
    weight, x = WEIGHT.clone().requires_grad_(), torch.randn(5, 64)
    each = torch.func.vmap(torch.func.grad(lambda w, one: tile_ops.rms_norm(one[None], w).square().sum()), (None, 0))
    one_by_one = [torch.autograd.grad(rms_norm(row[None], weight).square().sum(), weight)[0] for row in x]
    torch.testing.assert_close(each(weight.detach(), x), torch.stack(one_by_one), rtol=1e-4, atol=1e-5)


def test_transforms_of_functions_under_autocast_and_twice():
    def loss(x):
        return tile_ops.matmul(x, X.T).float().square().sum()

    x = X.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.func.grad(loss)(X)
        (expected,) = torch.autograd.grad(loss(x), x)
    assert torch.equal(found, expected)
    with pytest.raises(RuntimeError, match="softmax_backward has no backward"):
        torch.func.grad(lambda x: torch.func.grad(lambda x: tile_ops.softmax(x).square().sum())(x).sum())(X)


@SCRIPT
def test_forward_derivatives_are_refused():
    """torch gives a result that does not depend on the operand."""
    for _ in range(3):
        tile_ops.rms_norm(X, WEIGHT)
    with pytest.raises(RuntimeError, match="rms_norm has no forward derivative"):
        torch.func.jvp(lambda x: tile_ops.rms_norm(x, WEIGHT), (X,), (X,))
    with pytest.raises(RuntimeError, match="rms_norm(_backward)? has no forward derivative"):
        torch.func.hessian(lambda x: tile_ops.rms_norm(x, WEIGHT).square().sum())(X)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="rms_norm has no forward derivative"):
        tile_ops.rms_norm(forward_ad.make_dual(X, X), WEIGHT)
    _, tangent = torch.func.jvp(lambda x: x * tile_ops.rms_norm(X, WEIGHT), (X,), (X,))
    torch.testing.assert_close(tangent, X * tile_ops.rms_norm(X, WEIGHT))
