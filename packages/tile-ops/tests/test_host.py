"""What a call works out once: the problem, the plan, the launchers' complete check; and how operators meet autograd."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.utils.checkpoint
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tile_ops
from tile_ops import registration
from tile_ops.again import Again, Offer, Replay, offer, taken
from tile_ops.attention.api import forward_operation
from tile_ops.constants import MOST_ZEROS, zeros
from tile_ops.errors import WrongDevice
from tile_ops.gemm.api import MATMUL, _matmul_out
from tile_ops.normalization.api import RMS_NORM, rms_norm_operation, softmax_operation
from tile_ops.state_space.api import _ssd_step
from tile_ops.state_space.reference import ssd_step as ssd_step_reference
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


@pytest.mark.parametrize("target", ["cpu", "cuda -arch=sm_90a"])
@pytest.mark.parametrize(
    "call",
    [
        lambda: (tile_ops.matmul, torch.randn(40, 32), torch.randn(24, 32).T),
        lambda: (tile_ops.matmul, torch.randn(70, 96), torch.randn(70, 96).T),
        lambda: (tile_ops.rms_norm, torch.randn(40, 96), torch.randn(96)),
        lambda: (tile_ops.softmax, torch.randn(40, 96)),
        lambda: (tile_ops.flash_attention, *torch.randn(3, 1, 40, 2, 64)),
    ],
    ids=["matmul", "matmul of more rows", "rms_norm", "softmax", "flash_attention"],
)
def test_a_call_that_is_known_keeps_no_operand(run_as, call, target):
    """What is kept of a call are its shapes: no memory of the one by which a kernel was prepared."""
    run_as(target)
    kept = []
    for _ in range(5):
        function, *operands = call()
        result = function(*operands)
        kept += [StorageWeakRef(x.untyped_storage()) for x in (*operands, result)]
    del operands, result
    gc.collect()
    assert all(storage.expired() for storage in kept)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": WEIGHT[:4], "activation": "relu"}, {"out_dtype": torch.float16}],
    ids=["plain", "bias", "float16"],
)
def test_calls_that_come_again_make_no_views(options, monkeypatch):
    bare = bytearray(4 * X.numel() + 64)  # torch's own memory begins at multiples of 64 bytes
    begin = -torch.frombuffer(bare, dtype=torch.uint8).data_ptr() % 64 + 4
    odd = torch.frombuffer(bare, dtype=torch.float32, count=X.numel(), offset=begin).view(X.shape).copy_(X)
    operands = [(X, X.T), (X, X.T), (X.clone() + 1, torch.randn(4, 64).T), (odd, X.T), (X, odd.T)]
    for a, b in operands:
        expected = a.double() @ b.double() + options.get("bias", torch.zeros(4))
        expected = expected.relu() if "activation" in options else expected
        found = tile_ops.matmul(a, b, **options)
        torch.testing.assert_close(found.double(), expected, atol=1e-2 if "out_dtype" in options else 1e-4, rtol=1e-3)
    launches = tile_ops.explain(tile_ops.matmul, X, X.T, **options).launches
    monkeypatch.setattr("tile_ops.gemm.operands.Views.of", lambda *_: pytest.fail("views were made"))
    tile_ops.matmul(X, X.T, **options)
    assert tile_ops.explain(tile_ops.matmul, X, X.T, **options).launches == launches + 1


def test_every_difference_makes_another_call():
    made = []
    first = MATMUL.call(X, X.T)
    assert MATMUL.call(X.clone(), X.clone().T) is first
    wide = torch.randn(4, 80)
    for args, kwargs in (
        ((X.half(), X.half().T), {}),
        ((X, X.T.contiguous()), {}),
        ((X[:3], X.T), {}),
        ((wide[:, :64], X.T), {}),
        ((wide[:, 1:65], X.T), {}),
        ((X, X.T), {"activation": "relu"}),
        ((X, X.T), {"bias": WEIGHT[:4]}),
        ((X, X.T), {"out_dtype": torch.float16}),
    ):
        made.append(MATMUL.call(*args, **kwargs))
    assert len({id(call) for call in (first, *made)}) == len(made) + 1


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


def test_a_call_that_comes_again_takes_any_address():
    bare = torch.zeros(X.numel() + 16)
    for offset in (0, 0, 0, 16, 1):  # the last one is no multiple of 16 bytes
        odd = bare[offset : offset + X.numel()].view(X.shape).copy_(X)
        expected = torch.nn.functional.layer_norm(X, (64,), WEIGHT)
        torch.testing.assert_close(tile_ops.layer_norm(odd, WEIGHT), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tile_ops.softmax(odd), X.softmax(-1), rtol=1e-5, atol=1e-6)


QUERY, KEYS, VALUES = torch.randn(1, 3, 2, 16), torch.randn(1, 5, 2, 16), torch.randn(1, 5, 2, 16)
PAGES, TABLE = torch.randn(2, 8, 2, 16), torch.tensor([[1, 0]], dtype=torch.int32)
LATENTS, LATENT = torch.randn(2, 16, 48), (torch.randn(1, 4, 32), torch.randn(1, 4, 16))
GROUPS, PAIRS, STATES = torch.randn(1, 3, 1, 16), torch.randn(1, 1, 1, 64, 64), torch.randn(1, 1, 2, 16, 16)
STEP = torch.nn.functional.pad(torch.rand(1, 2, 1, 3), (0, 61))
RATES = torch.rand(1, 3, 2)
TURNED = torch.randn(2, 32, 64)
MATRICES, SIZES, ROWS = torch.randn(2, 64, 32), torch.tensor([3, 1], dtype=torch.int32), torch.randn(40, 256).half()
#: torch's own use of what it has deprecated, at the first vmap of a process.
SCRIPT = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

AGAIN = {
    "matmul": lambda: tile_ops.matmul(X, X.T),
    "matmul with bias": lambda: tile_ops.matmul(X, X.T, bias=WEIGHT[:4], activation="relu"),
    "matmul in parts": lambda: tile_ops.matmul(LONG, LONG.T),
    "rms_norm": lambda: tile_ops.rms_norm(X, WEIGHT, activation="silu"),
    "layer_norm": lambda: tile_ops.layer_norm(X, WEIGHT, WEIGHT + 1),
    "layer_norm without weights": lambda: tile_ops.layer_norm(X),
    "softmax": lambda: tile_ops.softmax(X),
    "flash_attention": lambda: tile_ops.flash_attention(QUERY, KEYS, VALUES, causal=True, return_lse=True)[1],
    "flash_attention of one tensor": lambda: tile_ops.flash_attention(QUERY, QUERY, QUERY, sinks=WEIGHT[:2].clone()),
    "flash_decode": lambda: tile_ops.flash_decode(QUERY[:, 0], PAGES, PAGES + 1, TABLE, TABLE[0, :1] + 6),
    "mla_decode": lambda: tile_ops.mla_decode(*LATENT, LATENTS, TABLE, TABLE[0, :1] + 6, scale=1.0),
    "chunk_state": lambda: tile_ops.chunk_state(GROUPS, HEADS, STEP, STEP.cumsum(-1)),
    "chunk_scan": lambda: tile_ops.chunk_scan(PAIRS, HEADS, STEP, -STEP.cumsum(-1), GROUPS, STATES),
    "chunk_scan with D": lambda: tile_ops.chunk_scan(PAIRS, HEADS, STEP, -STEP.cumsum(-1), GROUPS, STATES, WEIGHT[:2]),
    "ssd_scan": lambda: tile_ops.ssd_scan(HEADS, RATES, -WEIGHT[:2].abs(), GROUPS, GROUPS, chunk_size=64),
    "ssd_scan of a model": lambda: tile_ops.ssd_scan(
        HEADS,
        RATES,
        -WEIGHT[:2].abs(),
        GROUPS,
        GROUPS,
        chunk_size=64,
        D=WEIGHT[:2],
        dt_bias=WEIGHT[4:6],
        dt_softplus=True,
    ),
    "linear_attention": lambda: tile_ops.linear_attention(HEADS, HEADS, HEADS),
    "retention": lambda: tile_ops.linear_attention(HEADS, HEADS, HEADS, decay=-WEIGHT[:2].abs()),
    "gated": lambda: tile_ops.linear_attention(HEADS, HEADS, HEADS, decay=-HEADS.abs(), return_final_state=True)[1],
    "grouped_matmul": lambda: tile_ops.grouped_matmul(X, MATRICES, SIZES),
    "grouped_matmul, transposed": lambda: tile_ops.grouped_matmul(X, TURNED.mT, SIZES),
    **{
        f"dequant_matmul {w.format} {m}": lambda w=w, m=m: tile_ops.dequant_matmul(
            ROWS[:m], w.packed, scales=w.scales, zeros=w.zeros, format=w.format, group_size=w.group_size
        )
        for w in (
            tile_ops.quantize(torch.randn(32, 256).half(), format=name, group_size=128) for name in ("uint4", "nf4")
        )
        for m in (1, 3, 40)
    },
}
LONG = torch.randn(1, 1 << 16)


@pytest.mark.parametrize("name", AGAIN)
def test_a_call_that_comes_again_goes_by_the_implementation(name, monkeypatch):
    call = AGAIN[name]
    expected = call()
    call(), call()  # the second one prepares, the third one is kept
    monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
    results = [call(), call()]
    monkeypatch.setattr(Again, "replay", lambda *_: pytest.fail("native code did not know the call"))
    results += [call(), call()]
    assert all(torch.equal(result, expected) for result in results)
    assert results[0].data_ptr() != results[1].data_ptr()


@pytest.mark.parametrize("code", ["native", "python"])
def test_calls_on_the_same_shapes_come_again_in_turns(code, monkeypatch):
    """Other options and types: each is known beside the others."""
    operation = forward_operation
    if code == "python":
        monkeypatch.setattr("tile_ops.again.known_calls", lambda: None)
    monkeypatch.setattr(operation, "again", Again())
    q, k, v = (torch.randn(1, 24, 2, 64) for _ in range(3))
    calls = [
        lambda: tile_ops.flash_attention(q, k, v),
        lambda: tile_ops.flash_attention(q, k, v, causal=True),
        lambda: tile_ops.flash_attention(q, k, v, window=(8, 0)),
        lambda: tile_ops.flash_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()),
    ]
    expected = [call() for call in calls]
    for call in (*calls, *calls):
        call()  # the second time prepares, the third one is kept
    monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
    for call, wanted in zip((*calls, *calls), (*expected, *expected)):
        assert torch.equal(call(), wanted)


PUBLIC = {
    name: getattr(tile_ops, public)
    for name in AGAIN
    if (public := name.partition(" ")[0].rstrip(","))
    in ("matmul", "rms_norm", "layer_norm", "softmax", "grouped_matmul", "dequant_matmul")
}


@pytest.mark.parametrize("name", PUBLIC)
def test_python_does_not_run_the_function_for_a_known_call(name):
    """From CPython 3.12 on: before, a call of a function of Python cannot go elsewhere."""
    call, seen = AGAIN[name], []
    expected = call()
    call(), call()
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code) if event == "call" else None)
    try:
        found = call()
    finally:
        sys.setprofile(None)
    assert torch.equal(found, expected)
    assert call.__code__ in seen
    assert (PUBLIC[name].__code__ in seen) == (sys.version_info < (3, 12))


@pytest.fixture(params=["native", "python", "dispatched"])
def known_by(request, monkeypatch):
    """What knows a call that writes an operand."""
    if request.param == "python":
        monkeypatch.setattr("tile_ops.again.known_calls", lambda: None)
    for operation in (_matmul_out, _ssd_step):
        monkeypatch.setattr(operation, "again", Again(operation.again._written))
        monkeypatch.setattr(operation, "_dispatched", Again(operation._dispatched._written))
        if request.param == "dispatched":
            monkeypatch.setattr(operation.again, "call", lambda *_: None)
            monkeypatch.setattr("tile_ops.registration._alone", lambda *_: False)
    return request.param


def test_a_product_into_a_tensor_comes_again(known_by, monkeypatch):
    a, b, bias = (torch.randn(shape) for shape in ((24, 64), (64, 64), 64))
    out = torch.full((24, 64), float("nan"))
    for rows in range(1, 4):
        assert tile_ops.matmul(a, b, bias=bias, out=out) is out
        assert out._version == rows  # the first one prepares, the second one is kept
    monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
    for left, target in ((a, out), (a + 1, out), (a, torch.full((24, 64), float("nan")))):
        version = target._version
        tile_ops.matmul(left, b, bias=bias, out=target)
        torch.testing.assert_close(target.double(), left.double() @ b.double() + bias.double(), rtol=1e-5, atol=1e-5)
        assert target._version == version + 1
    with pytest.raises(RuntimeError, match="matmul_out writes an operand"):
        tile_ops.matmul(a.clone().requires_grad_(), b, bias=bias, out=out)


def test_autograd_knows_of_a_product_into_a_tensor_that_comes_again(known_by):
    a, b, out = torch.randn(5, 64), torch.randn(64, 64), torch.empty(5, 64)
    wanted, x = a.requires_grad_(), torch.randn(5, 64, requires_grad=True)
    with torch.no_grad():
        for _ in range(4):
            tile_ops.matmul(wanted, b, out=out)
    with pytest.raises(RuntimeError, match="matmul_out writes an operand"):
        tile_ops.matmul(wanted, b, out=out)
    product = (x * out).sum()  # keeps `out` for the gradient of x
    with torch.no_grad():
        tile_ops.matmul(wanted, b, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        kept = torch.full((5, 64), float("nan"))
        for _ in range(4):
            tile_ops.matmul(wanted, b, out=kept)  # has no version
        torch.testing.assert_close(kept.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)


def test_a_product_into_its_own_operand_is_never_taken_for_one_that_is_known(known_by):
    a, b = torch.randn(64, 64), torch.randn(64, 64)

    def into(a, b, out):
        expected = a.double() @ b.double()
        assert tile_ops.matmul(a, b, out=out) is out
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-3)

    room = torch.empty(256, 64)
    for _ in range(4):
        into(a, b, torch.empty(64, 64))
    for first in (0, 64, 1, 63, 100):
        room.normal_()
        into(room[:64], b, room[first : first + 64])
        into(b, room[:64], room[first : first + 64])
        into(a, b, torch.empty(64, 64))
    same = torch.randn(64, 64)
    for _ in range(3):
        into(same, same, same.normal_())


def test_steps_of_a_state_come_again(known_by, monkeypatch):
    state = torch.randn(2, 4, 16, 32)
    for turn in range(6):
        if turn == 3:  # the first one prepares, the second one is kept
            monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
        x, dt, B, C, D = (torch.randn(s) for s in ((2, 4, 16), (2, 4), (2, 1, 32), (2, 1, 32), (4,)))
        A, dt = -torch.rand(4), dt.abs()
        expected, after = ssd_step_reference(state, x, dt, A, B, C, D=D)
        found = tile_ops.ssd_step(state, x, dt, A, B, C, D=D)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state.double(), after, rtol=1e-5, atol=1e-5)
        assert state._version == turn + 1


@SCRIPT
@pytest.mark.parametrize("code", ["native", "python"])
def test_what_is_not_the_same_call_is_not_taken_for_it(code, monkeypatch):
    """Each beside a call that is known, to native code, and where there is none to Python."""
    if code == "python":
        for operation in (rms_norm_operation, forward_operation):
            operation.again.forget()
            monkeypatch.setattr(operation, "again", Again())
        monkeypatch.setattr("tile_ops.again.known_calls", lambda: None)

    def norm(x, eps=1e-6, weight=WEIGHT):
        x, weight = x.double(), weight.double()
        return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight).float()

    def known():
        for _ in range(4):
            torch.testing.assert_close(tile_ops.rms_norm(X, WEIGHT), norm(X), rtol=1e-5, atol=1e-5)

    known()
    spread = torch.randn(4, 128)[:, ::2]
    negative = torch.complex(X, -X).conj().imag
    odd = torch.zeros(X.numel() + 1)[1:].view(X.shape).copy_(X)
    for x in (spread, negative, odd, X.T.contiguous().T):
        torch.testing.assert_close(tile_ops.rms_norm(x, WEIGHT), norm(x), rtol=1e-5, atol=1e-5)
        known()
    torch.testing.assert_close(tile_ops.rms_norm(X, WEIGHT, eps=1.0), norm(X, 1.0), rtol=1e-5, atol=1e-5)
    known()
    with torch.autocast("cpu", torch.bfloat16):
        assert tile_ops.rms_norm(X, WEIGHT).dtype == torch.bfloat16
    with torch.inference_mode():
        assert tile_ops.rms_norm(X, WEIGHT).is_inference()
    known()
    batched = torch.vmap(lambda x: tile_ops.rms_norm(x, WEIGHT))(torch.stack([X, X + 1]))
    torch.testing.assert_close(batched[1], norm(X + 1), rtol=1e-5, atol=1e-5)
    q = QUERY.clone().requires_grad_()
    with torch.no_grad():
        for _ in range(4):
            assert not tile_ops.flash_attention(q, KEYS, VALUES).requires_grad
    assert tile_ops.flash_attention(q, KEYS, VALUES).requires_grad
    twice = QUERY.clone()
    for _ in range(3):
        tile_ops.flash_attention(twice, twice, twice)
    apart = tile_ops.flash_attention(twice, twice.clone() + 1, twice)
    assert torch.equal(apart, tile_ops.flash_attention(twice.clone(), twice + 1, twice.clone()))


def test_another_number_is_another_call():
    for scale in (1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 1.0):
        found = tile_ops.linear_attention(HEADS, HEADS, HEADS, scale=scale)
        weights = torch.einsum("bihd,bjhd->bhij", HEADS, HEADS).tril() * scale
        torch.testing.assert_close(found, torch.einsum("bhij,bjhd->bihd", weights, HEADS), rtol=1e-3, atol=1e-3)


def test_a_kernel_that_writes_more_than_a_result_is_not_launched_again():
    """Its results are parts of what it writes: memory for the first of them is too short."""
    whole = torch.empty(2, 64)
    for results, known in ((whole.unbind(), False), ((whole,), True)):
        offered = Offer(results, (), None, None, ())
        launches = [(SimpleNamespace(kernel=None, counter=None), (X, whole))]
        assert (Replay.of((X,), launches, offered) is not None) is known


def test_zeros_of_a_power_of_two_are_kept():
    cpu = torch.device("cpu")
    assert zeros(5, cpu) is zeros(8, cpu) is not zeros(9, cpu)
    assert zeros(0, cpu).numel() == zeros(1, cpu).numel() == 1
    assert zeros(MOST_ZEROS, cpu).numel() == MOST_ZEROS
    assert zeros(MOST_ZEROS + 1, cpu) is None


def test_constants_of_a_graph_that_is_captured_are_not_kept(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for is_cuda in (False, True):
        offer(X, constants=[SimpleNamespace(is_cuda=is_cuda)])
        assert (taken() is None) is is_cuda


def test_an_implementation_that_does_more_than_its_kernels_is_asked_each_time():
    """It calls another operator, which launches kernels that its own record does not hold; or it changes what they gave."""

    offered, implementation = Again(), rms_norm_operation._function

    def calls(x, *rest):
        return implementation(tile_ops.softmax(x), *rest)

    def changes(*arguments):
        return implementation(*arguments) + 1

    def adds(x, *rest):
        return implementation(x, *rest).add_(tile_ops.softmax(x))

    x, rest = X + 1, (WEIGHT, 1e-6, None)
    for _ in range(4):
        tile_ops.softmax(x)  # from now on native code knows it
    for function in (calls, changes, adds):
        for _ in range(5):
            assert offered.replay((x, *rest)) is None
            offered.run(function, (x, *rest))
    for _ in range(4):
        offered.run(implementation, (x, *rest))
    assert torch.equal(offered.replay((x, *rest)), implementation(x, *rest))


def test_a_setting_between_makes_another_call(monkeypatch):
    for _ in range(4):
        tile_ops.softmax(X)
    monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "hip -mcpu=gfx942")
    before = tile_ops.explain(tile_ops.softmax, X).launches
    torch.testing.assert_close(tile_ops.softmax(X), X.softmax(-1), rtol=1e-5, atol=1e-6)
    assert tile_ops.explain(tile_ops.softmax, X).launches == before + 1


@pytest.mark.parametrize("recorded", [False, True])
def test_a_known_call_is_seen_by_modes(recorded):
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = X.clone().requires_grad_(recorded)
    for _ in range(4):
        expected = tile_ops.rms_norm(x, WEIGHT)
    for mode in (Seen, Called):
        seen: list[object] = []
        with mode():
            found = tile_ops.rms_norm(x, WEIGHT)
        assert torch.equal(found, expected)
        assert seen == [torch.ops.tile_ops.rms_norm.default]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_known_call_is_seen_by_modes_that_trace(recorded):
    """Operands that are tensors as ever, in the modes of fakes and of proxies."""
    x = X.clone().requires_grad_(recorded)
    for _ in range(4):
        tile_ops.rms_norm(x, WEIGHT)
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        assert type(tile_ops.rms_norm(x, WEIGHT)) is not torch.Tensor
    graph = make_fx(lambda: tile_ops.rms_norm(x, WEIGHT))().graph
    assert torch.ops.tile_ops.rms_norm.default in [node.target for node in graph.nodes]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_known_call_is_seen_by_the_profiler(recorded):
    """Python's entry and torch's flag: the first is set by `torch.profiler` only."""
    x = X.clone().requires_grad_(recorded)
    for _ in range(4):
        expected = tile_ops.rms_norm(x, WEIGHT)
    with torch.profiler.profile() as profiled:
        found = tile_ops.rms_norm(x, WEIGHT)
    assert torch.equal(found, expected)
    assert [event.count for event in profiled.key_averages() if event.key == "tile_ops::rms_norm"] == [1]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_known_call_is_converted_by_autocast(recorded):
    x = X.clone().requires_grad_(recorded)
    for _ in range(4):
        assert tile_ops.rms_norm(x, WEIGHT).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found = tile_ops.rms_norm(x, WEIGHT)
    assert torch.equal(found, tile_ops.rms_norm(X.bfloat16(), WEIGHT.bfloat16()))


@pytest.mark.parametrize("recorded", [False, True])
def test_a_known_call_is_seen_by_transforms(recorded):
    x, dy = X.clone().requires_grad_(recorded), torch.randn(4, 1, 64)
    for _ in range(4):
        expected = tile_ops.rms_norm(x, WEIGHT)
    found = torch.vmap(lambda one: tile_ops.rms_norm(one[None], WEIGHT))(x)
    assert torch.equal(found[:, 0], expected)
    if recorded:
        (gradient,) = torch.autograd.grad(found, x, dy)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, dy[:, 0])[0])


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


def test_a_call_for_gradients_is_another_call():
    """LayerNorm then keeps statistics, which the kernel that is prepared for calls without has no place for."""
    x, weight = X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    for _ in range(4):
        with torch.no_grad():
            tile_ops.layer_norm(x, weight)
        found = torch.autograd.grad(tile_ops.layer_norm(x, weight), (x, weight), X)
    expected = torch.autograd.grad(torch.nn.functional.layer_norm(x, (64,), weight), (x, weight), X)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("recorded", [False, True])
def test_calls_by_the_dispatcher_come_again(recorded, monkeypatch):
    """Those of compiled graphs."""
    operator, x = torch.ops.tile_ops.rms_norm.default, X.clone().requires_grad_(recorded)
    for _ in range(4):
        expected = operator(x, WEIGHT, 1e-6, None)
    monkeypatch.setattr(Again, "run", lambda *_: pytest.fail("the implementation was asked"))
    assert torch.equal(operator(x, WEIGHT, 1e-6, None), expected)
    with torch.profiler.profile():  # native code refuses it
        assert torch.equal(operator(x, WEIGHT, 1e-6, None), expected)
    monkeypatch.undo()
    assert torch.equal(operator(X, WEIGHT, 1e-6, None), expected)


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
