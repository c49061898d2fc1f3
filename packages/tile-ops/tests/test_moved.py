"""What --device does with the tests' tensors, with copies on the CPU in the device's place."""

from __future__ import annotations

import torch

import tile_ops
from tile_ops.gemm import reference

from .moved import Trip, move_operators, moved


def test_memory_travels_as_a_whole():
    frame = torch.arange(60.0).view(6, 10)
    trip = Trip("cpu")
    view, turned, number = trip.there(frame[1:5, 2:8]), trip.there(frame.T), trip.there(3)
    assert number == 3
    assert (view.stride(), view.storage_offset()) == ((10, 1), 12)
    assert torch.equal(turned, frame.T)
    view.zero_()
    assert frame[1, 2] == 12, "a copy"
    assert turned[2, 1] == 0, "what shares memory here shares it there"
    trip.write_back()
    assert not frame[1:5, 2:8].any()
    assert frame[0, 2] == 2


def test_an_operand_that_is_the_result_is_the_callers():
    x, other = torch.ones(3), torch.ones(3)
    found = moved(lambda a, b: (b, (a.add_(1), a + b), None), "cpu")(x, b=other)
    assert found[0] is other
    assert found[1][0] is x
    assert torch.equal(x, 2 * other)
    assert torch.equal(found[1][1], 3 * other)


def test_operators_are_called_there(monkeypatch, ran, close):
    plain = tile_ops.matmul
    move_operators(monkeypatch, "cpu")
    assert tile_ops.matmul.__wrapped__ is plain
    a, b = torch.randn(20, 32), torch.randn(32, 24)
    out = torch.full((22, 40), 7.0)[1:21, 8:32]
    assert ran(tile_ops.matmul, a, b, out=out) is out
    close(out, reference.matmul(a, b), reference.TOLERANCES["float32"])
    leaf = a.clone().requires_grad_()
    tile_ops.matmul(leaf, b).sum().backward()
    close(leaf.grad, b.sum(1).expand(20, 32), 1e-5)
    torch.library.opcheck(torch.ops.tile_ops.matmul.default, (leaf, b, None, None, None), test_utils=("test_schema",))
    compiled = torch.compile(lambda a: tile_ops.matmul(a, b), fullgraph=True, backend="aot_eager")
    close(compiled(a), out, 1e-5)
