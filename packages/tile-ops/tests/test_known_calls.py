"""Calls that come again: which are the same, what is kept of one, and who still sees it (tile_ops/again.py)."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.utils.checkpoint
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tile_ops
from tile_ops.again import Again, Offer, Replay, offer, taken
from tile_ops.attention.api import forward_operation
from tile_ops.constants import MOST_ZEROS, zeros
from tile_ops.gemm.api import MATMUL, _matmul_out
from tile_ops.normalization.api import rms_norm_operation
from tile_ops.state_space.api import _ssd_step
from tile_ops.state_space.reference import ssd_step as ssd_step_reference

X, WEIGHT = torch.randn(4, 64), torch.randn(64)
HEADS = torch.randn(1, 3, 2, 16)


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
    "call",
    [
        lambda: (tile_ops.matmul, torch.randn(40, 32), torch.randn(32, 24)),
        lambda: (tile_ops.layer_norm, torch.randn(40, 96), torch.randn(96)),
        lambda: (tile_ops.softmax, torch.randn(40, 96)),
        lambda: (tile_ops.flash_attention, *torch.randn(3, 1, 40, 2, 64)),
        lambda: (with_lse, *torch.randn(3, 1, 40, 2, 64)),
        lambda: (tile_ops.linear_attention, *torch.randn(3, 1, 40, 2, 64)),
        lambda: (scan, torch.randn(1, 40, 2, 16), torch.rand(1, 40, 2), -torch.rand(2), *torch.randn(2, 1, 40, 1, 16)),
    ],
    ids=["matmul", "layer_norm", "softmax", "attention", "attention with lse", "linear_attention", "ssd_scan"],
)
def test_gradients_that_are_known_keep_no_operand(call):
    """Nor the graph of the pass by which they were prepared."""
    kept = []
    for _ in range(5):
        function, *operands = call()
        leaves = [x.requires_grad_() for x in operands]
        results = function(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        gradients = torch.autograd.grad(results, leaves, [torch.randn_like(x) for x in results])
        kept += [StorageWeakRef(x.untyped_storage()) for x in (*leaves, *results, *gradients)]
    del function, operands, leaves, results, gradients
    gc.collect()
    assert all(storage.expired() for storage in kept)
    for replay in (x for x in gc.get_objects() if isinstance(x, Replay)):
        held = [x for x in replay._nothing if x is not None]
        assert all(x.numel() or not x.untyped_storage().nbytes() for x in held)


def with_lse(q, k, v):
    return tile_ops.flash_attention(q, k, v, return_lse=True)


def scan(x, dt, A, B, C):
    return tile_ops.ssd_scan(x, dt, A, B, C, chunk_size=64, return_final_states=True)


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
    "ssd_scan with a state": lambda: tile_ops.ssd_scan(
        HEADS, RATES, -WEIGHT[:2].abs(), GROUPS, GROUPS, chunk_size=64, initial_states=STATES[0]
    ),
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
    "linear_attention with a state": lambda: tile_ops.linear_attention(HEADS, HEADS, HEADS, initial_state=STATES[0]),
    "gated with a state": lambda: tile_ops.linear_attention(
        HEADS, HEADS, HEADS, decay=-HEADS.abs(), initial_state=STATES[0]
    ),
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
