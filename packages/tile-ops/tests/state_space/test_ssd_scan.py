"""The scan of Mamba-2 and its two kernels agree with the recurrence token by token, and are torch operators."""

from __future__ import annotations

import re

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.state_space import reference

TOLERANCE = reference.TOLERANCES


def model(seqlen, nheads=2, ngroups=1, headdim=64, dstate=32, batch=1, dtype=torch.float16, seed=0):
    """x, dt, A, B, C; D, z and dt_bias by name."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    x, dt = normal(batch, seqlen, nheads, headdim), normal(batch, seqlen, nheads) - 1
    A = -torch.rand(nheads, generator=generator) - 0.1
    B, C = normal(batch, seqlen, ngroups, dstate), normal(batch, seqlen, ngroups, dstate)
    named = {"D": normal(nheads), "z": normal(batch, seqlen, nheads, headdim), "dt_bias": normal(nheads)}
    return (x, dt, A, B, C), named


def agree(found, operands, tolerance, close, **options):
    y, final = reference.ssd_scan(*operands, **options)
    close(found[0], y, tolerance)
    close(found[1], final, tolerance)


#: Most tests share these, and so the kernels.
OPTIONS = {"chunk_size": 128, "dt_softplus": True}


@pytest.mark.amd_in_full
@pytest.mark.parametrize("seqlen", [1, 200])
def test_agrees_with_the_recurrence(way, ran, close, seqlen):
    operands, named = model(seqlen, nheads=8, ngroups=2)  # on Hopper a block takes four heads, by turns
    found = ran(tile_ops.ssd_scan, *operands, **OPTIONS, **named, return_final_states=True)
    assert found[1].dtype == torch.float32
    agree(found, operands, TOLERANCE["float16"], close, dt_softplus=True, **named)


@pytest.mark.full
@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "cuda -arch=sm_90a"])
def test_packed_sequences_start_from_their_own_states(ran, close, run_as, target):
    run_as(target)
    operands, named = model(150)
    named["initial_states"] = torch.randn(3, 2, 64, 32, generator=torch.Generator().manual_seed(1))
    named["cu_seqlens"] = torch.tensor([0, 70, 70, 150], dtype=torch.int32)
    options = {**OPTIONS, "chunk_size": 64, "return_final_states": True}
    found = ran(tile_ops.ssd_scan, *operands, **options, **named)
    agree(found, operands, TOLERANCE["float16"], close, dt_softplus=True, **named)
    assert torch.equal(found[1][1], named["initial_states"][1])  # an empty sequence


def test_a_sequence_may_be_continued(close):
    operands, named = model(100, batch=2)
    options = {**OPTIONS, "D": named["D"], "dt_bias": named["dt_bias"], "return_final_states": True}
    z = named["z"]
    y, middle = tile_ops.ssd_scan(*(t[:, :40] if t.ndim > 1 else t for t in operands), z=z[:, :40], **options)
    rest = [t[:, 40:] if t.ndim > 1 else t for t in operands]
    later, final = tile_ops.ssd_scan(*rest, initial_states=middle, z=z[:, 40:], **options)
    agree((torch.cat([y, later], 1), final), operands, TOLERANCE["float16"], close, dt_softplus=True, **named)


def test_sizes_that_fill_no_tile_and_negative_steps(ran, close):
    operands, _ = model(70, nheads=4, ngroups=2, headdim=40, dstate=24, batch=2, dtype=torch.bfloat16)
    assert (operands[1] < 0).any()
    found = ran(tile_ops.ssd_scan, *operands, chunk_size=64, return_final_states=True)
    agree(found, operands, TOLERANCE["bfloat16"], close)


def test_tokens_that_leave_nothing(ran, close):
    """exp(-100) and less: sums of decays are large, those of a token with itself are none, and must stay so."""
    (x, dt, A, *rest), _ = model(150, headdim=40, dstate=24, dtype=torch.float32)
    operands = (x, dt / 8 + 2, torch.full_like(A, -100.0), *rest)
    found = ran(tile_ops.ssd_scan, *operands, chunk_size=64, return_final_states=True)
    agree(found, operands, 2e-6, close)


@pytest.mark.parametrize("softplus", [True, False])
def test_a_step_that_is_no_number_reaches_its_outputs(ran, softplus):
    """And no token before it."""
    (x, dt, *rest), _ = model(100)
    dt[0, 40, 1] = float("nan")
    y = ran(tile_ops.ssd_scan, x, dt, *rest, **OPTIONS | {"dt_softplus": softplus})
    assert y[0, 40:, 1].isnan().all()
    assert y[0, :40].isfinite().all()
    assert y[0, :, 0].isfinite().all()


@pytest.mark.parametrize(
    ("target", "headdim", "dstate"),
    [
        ("hip -mcpu=gfx942", 72, 64),
        pytest.param("hip -mcpu=gfx942", 256, 64, marks=pytest.mark.full),
        pytest.param("cuda -arch=sm_90a", 96, 128, marks=pytest.mark.full),
    ],
)
def test_tiles_of_float32_fit_the_shared_memory(ran, close, run_as, target, headdim, dstate):
    run_as(target)
    operands, _ = model(40, headdim=headdim, dstate=dstate, dtype=torch.float32)
    found = ran(tile_ops.ssd_scan, *operands, chunk_size=64, dt_softplus=True, return_final_states=True)
    agree(found, operands, TOLERANCE["float32"], close, dt_softplus=True)


def test_two_kernels_alone(ran, close):
    (x, dt, A, B, C), named = model(200, batch=2)
    dt = torch.nn.functional.pad(torch.nn.functional.softplus(dt.float()), (0, 0, 0, 56))
    steps = dt.transpose(1, 2).reshape(2, 2, 2, 128).contiguous()
    sums = torch.cumsum(steps * A[:, None, None], -1)
    for out_dtype in (torch.float32, torch.float16):
        states = ran(tile_ops.chunk_state, B, x, steps, sums, out_dtype=out_dtype)
        assert states.dtype == out_dtype
        close(states, reference.chunk_state(B, x, steps, sums), TOLERANCE["float16"])
    cb = torch.randn(2, 2, 1, 128, 128, generator=torch.Generator().manual_seed(1)).half()
    operands = (cb, x, steps, sums, C, states, named["D"], named["z"])
    close(ran(tile_ops.chunk_scan, *operands), reference.chunk_scan(*operands), TOLERANCE["float16"])


@pytest.mark.cpu("a GPU's values are not read, as that would wait for it")
def test_lengths_are_looked_at_in_every_call():
    operands, _ = model(8)
    tile_ops.ssd_scan(*operands, cu_seqlens=torch.tensor([0, 8], dtype=torch.int32))
    with pytest.raises(WrongValue, match="from 0 to seqlen, 8"):
        tile_ops.ssd_scan(*operands, cu_seqlens=torch.tensor([0, 9], dtype=torch.int32))


def test_empty():
    (x, dt, A, B, C), _ = model(0)
    start = torch.ones(1, 2, 64, 32)
    y, final = tile_ops.ssd_scan(x, dt, A, B, C, initial_states=start, return_final_states=True)
    assert y.shape == x.shape
    assert torch.equal(final, start)
    assert not tile_ops.ssd_scan(x, dt, A, B, C, return_final_states=True)[1].any()
    assert tile_ops.ssd_scan(x[:0], dt[:0], A, B[:0], C[:0]).shape == (0, 0, 2, 64)


def test_is_a_torch_operator():
    operands, named = model(64)
    options = (named["D"], named["dt_bias"], named["z"], None, None, 128, True)
    torch.library.opcheck(torch.ops.tile_ops.ssd_scan.default, (*operands, *options))


def test_compiles_as_one_graph(close):
    (x, *rest), named = model(64)
    scan = torch.compile(
        lambda x: 2 * tile_ops.ssd_scan(x, *rest, **OPTIONS, **named), fullgraph=True, backend="aot_eager"
    )
    expected = reference.ssd_scan(x, *rest, dt_softplus=True, **named)[0]
    close(scan(x), 2 * expected, TOLERANCE["float16"])


def test_autocast_leaves_steps_and_decays(close, device):
    (x, dt, A, B, C), _ = model(70, nheads=4, ngroups=2, headdim=40, dstate=24, batch=2, dtype=torch.float32)
    dt = dt.bfloat16()
    with torch.autocast(device, torch.bfloat16):
        found = tile_ops.ssd_scan(x, dt, A, B, C, chunk_size=64)
    assert found.dtype == torch.bfloat16
    close(found, reference.ssd_scan(x, dt, A, B, C)[0], TOLERANCE["bfloat16"])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"B": torch.ones(1, 8, 1, 16).half()}, WrongShape, "C has shape (1, 8, 1, 32)"),
        ({"dt": torch.ones(1, 8, 2).double()}, WrongDtype, "dt is torch.float64"),
        ({"x": torch.ones(1, 8, 2, 60).half()}, WrongShape, "headdim is 60; expected a multiple of 8"),
        ({"x": torch.ones(1, 8, 2, 64).int()}, WrongDtype, "x is torch.int32"),
        ({"x": torch.ones(8, 2, 64).half()}, WrongShape, "expected (batch, seqlen, nheads, headdim)"),
        ({"B": torch.ones(1, 8, 3, 32).half()}, WrongShape, "2 heads in 3 groups"),
        ({"D": torch.ones(3)}, WrongShape, "D has shape (3,)"),
        ({"chunk_size": 100}, WrongValue, "chunk_size is 100"),
        pytest.param(
            {"cu_seqlens": torch.tensor([0, 5], dtype=torch.int32)},
            WrongValue,
            "from 0 to seqlen, 8",
            marks=pytest.mark.cpu("a GPU's values are not read, as that would wait for it"),
        ),
        ({"cu_seqlens": torch.tensor([0.0, 8.0])}, WrongDtype, "cu_seqlens is torch.float32"),
    ],
)
def test_refuses(change, error, text):
    operands = dict(zip(("x", "dt", "A", "B", "C"), model(8)[0]))
    with pytest.raises(error, match=re.escape(text)):
        tile_ops.ssd_scan(**{**operands, **change})
