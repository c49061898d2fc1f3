"""Weights that others stored are the same numbers afterwards, and multiply as such.

What each library writes is stated here once more, number by number, in plain Python.
"""

from __future__ import annotations

import json
import random
import re

import pytest
import torch

import tile_ops
from tile_ops.dequantize import reference
from tile_ops.dequantize.formats import BITSANDBYTES_FP4, NF4
from tile_ops.dequantize.stored import NestedScales
from tile_ops.errors import WrongDtype, WrongShape, WrongValue

N, K, GROUP = 16, 128, 32


def word(nibbles):
    """Eight numbers as an int32, the first in the lowest bits."""
    value = sum(number << 4 * place for place, number in enumerate(nibbles))
    return value - 2**32 if value >= 2**31 else value


@pytest.fixture
def draw():
    return random.Random(0)


def layer(draw):
    """Codes [n][k], zero points and scales [group][n]."""
    codes = [[draw.randrange(16) for _ in range(K)] for _ in range(N)]
    zeros = [[draw.randrange(16) for _ in range(N)] for _ in range(K // GROUP)]
    scales = [[draw.randrange(1, 64) / 32 for _ in range(N)] for _ in range(K // GROUP)]
    return codes, zeros, scales


def meant(codes, zeros, scales, group_of):
    rows = [[(codes[n][k] - zeros[group_of[k]][n]) * scales[group_of[k]][n] for k in range(K)] for n in range(N)]
    return torch.tensor(rows, dtype=torch.float64)


def gptq(codes, zeros, scales, less):
    qweight = [[word(codes[n][8 * i : 8 * i + 8]) for n in range(N)] for i in range(K // 8)]
    qzeros = [[word([(z - less) % 16 for z in row[8 * i : 8 * i + 8]]) for i in range(N // 8)] for row in zeros]
    return (
        torch.tensor(qweight, dtype=torch.int32),
        torch.tensor(qzeros, dtype=torch.int32),
        torch.tensor(scales).half(),
    )


def dense(w):
    """The matrix that a QuantizedWeight stands for."""
    found = reference.dequantize(w.packed, scales=w.scales, zeros=w.zeros, format=w.format, group_size=w.group_size)
    if w.order is None:
        return found
    back = torch.empty_like(found)
    back[:, w.order] = found
    return back


def multiplies(w, matrix, close):
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(0)).half()
    close(w.matmul(x), x.double() @ matrix.T, reference.TOLERANCES["float16"])


@pytest.mark.parametrize("less", [1, 0])
def test_gptq(draw, close, less):
    codes, zeros, scales = layer(draw)
    w = tile_ops.from_gptq(*gptq(codes, zeros, scales, less), zeros_plus_one=bool(less))
    matrix = meant(codes, zeros, scales, [k // GROUP for k in range(K)])
    assert torch.equal(dense(w), matrix)
    multiplies(w, matrix, close)


def test_gptq_in_order_of_activations(draw, close):
    codes, zeros, scales = layer(draw)
    group_of = [k // GROUP for k in range(K)]
    draw.shuffle(group_of)
    w = tile_ops.from_gptq(*gptq(codes, zeros, scales, 1), torch.tensor(group_of, dtype=torch.int32))
    matrix = meant(codes, zeros, scales, group_of)
    assert torch.equal(dense(w), matrix)
    multiplies(w, matrix, close)


def test_scales_of_float32_are_for_autocast(draw, close, device):
    """float16 would lose what bfloat16 keeps: which type they get is for a call to say."""
    codes, zeros, scales = layer(draw)
    qweight, qzeros, stored = gptq(codes, zeros, scales, 1)
    w = tile_ops.from_gptq(qweight, qzeros, stored.float())
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(0))
    with torch.autocast(device, torch.bfloat16):
        found = w.matmul(x)
    close(found, x.double() @ dense(w).T, reference.TOLERANCES["bfloat16"])
    with pytest.raises(
        WrongDtype, match=re.escape("scales are torch.float32; expected float16: scales.to(torch.float16)")
    ):
        w.matmul(x.half())
    for kind in (torch.float64, torch.int32):
        with pytest.raises(
            WrongDtype, match=f"from_gptq: scales are {kind}; expected one of float16, bfloat16, float32"
        ):
            tile_ops.from_gptq(qweight, qzeros, stored.to(kind))


def test_awq(draw, close):
    codes, zeros, scales = layer(draw)
    columns = (0, 2, 4, 6, 1, 3, 5, 7)
    qweight = [[word([codes[8 * j + c][k] for c in columns]) for j in range(N // 8)] for k in range(K)]
    qzeros = [[word([row[8 * j + c] for c in columns]) for j in range(N // 8)] for row in zeros]
    w = tile_ops.from_awq(
        torch.tensor(qweight, dtype=torch.int32),
        torch.tensor(qzeros, dtype=torch.int32),
        torch.tensor(scales).half(),
    )
    matrix = meant(codes, zeros, scales, [k // GROUP for k in range(K)])
    assert torch.equal(dense(w), matrix)
    multiplies(w, matrix, close)


def bitsandbytes(draw, quant_type, table, is_nested):
    """The tensors of a layer by their names in a checkpoint, and the matrix that they mean."""
    codes = [draw.randrange(16) for _ in range(N * K)]
    blocks = N * K // 64
    facts = {"quant_type": quant_type, "blocksize": 64, "dtype": "float16", "shape": [N, K]}
    state = {
        "weight": torch.tensor([[codes[i] << 4 | codes[i + 1]] for i in range(0, N * K, 2)], dtype=torch.uint8),
        "weight.quant_map": torch.tensor(table),
    }
    if is_nested:
        values = [draw.randrange(-128, 128) / 128 for _ in range(256)]
        again = [draw.randrange(1, 8) / 4 for _ in range(blocks // 8)]
        stored = [draw.randrange(256) for _ in range(blocks)]
        absmax = [values[code] * again[b // 8] + 2.0 for b, code in enumerate(stored)]
        state["weight.absmax"] = torch.tensor(stored, dtype=torch.uint8)
        state |= {"weight.nested_absmax": torch.tensor(again), "weight.nested_quant_map": torch.tensor(values)}
        facts |= {"nested_blocksize": 8, "nested_dtype": "float32", "nested_offset": 2.0}
    else:
        absmax = [draw.randrange(1, 64) / 16 for _ in range(blocks)]
        state["weight.absmax"] = torch.tensor(absmax)
    name = f"weight.quant_state.bitsandbytes__{quant_type}"
    state[name] = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
    rows = [[table[codes[n * K + k]] * absmax[(n * K + k) // 64] for k in range(K)] for n in range(N)]
    return state, torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("quant_type", "table"), [("nf4", NF4), ("fp4", BITSANDBYTES_FP4)])
@pytest.mark.parametrize("is_nested", [False, True])
def test_bitsandbytes(draw, close, quant_type, table, is_nested):
    state, matrix = bitsandbytes(draw, quant_type, table, is_nested)
    nested = None
    if is_nested:
        nested = NestedScales(state["weight.nested_quant_map"], state["weight.nested_absmax"], 2.0, 8)
    stored = state["weight"], state["weight.absmax"]
    w = tile_ops.from_bitsandbytes(*stored, shape=(N, K), quant_type=quant_type, nested=nested)
    torch.testing.assert_close(dense(w), matrix, rtol=1e-7, atol=1e-7)
    multiplies(w, matrix, close)
    again = tile_ops.from_bitsandbytes_state({**state, "bias": torch.zeros(N)})
    assert again.format == w.format
    assert torch.equal(again.packed, w.packed)
    assert torch.equal(again.scales, w.scales)
    assert tile_ops.from_bitsandbytes_state(state, dtype=torch.bfloat16).scales.dtype == torch.bfloat16


def test_refuses_states_of_bitsandbytes(draw):
    state, _ = bitsandbytes(draw, "nf4", NF4, False)
    with pytest.raises(WrongValue, match="quant_map is no table of nf4"):
        tile_ops.from_bitsandbytes_state({**state, "weight.quant_map": torch.tensor(BITSANDBYTES_FP4)})
    with pytest.raises(WrongValue, match="0 tensors begin with weight.quant_state"):
        tile_ops.from_bitsandbytes_state({"weight": state["weight"]})


WORDS, ZEROS, SCALES = torch.zeros(8, 8).int(), torch.zeros(2, 1).int(), torch.ones(2, 8).half()
BYTES = torch.zeros(8 * 32, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tile_ops.from_gptq(WORDS.long(), ZEROS, SCALES), WrongDtype, "qweight is torch.int64"),
        (lambda: tile_ops.from_gptq(WORDS[0], ZEROS, SCALES), WrongShape, "qweight has shape (8,)"),
        (lambda: tile_ops.from_gptq(WORDS, ZEROS, SCALES[:1]), WrongShape, "zero points of shape (2, 8)"),
        (lambda: tile_ops.from_gptq(WORDS, ZEROS, SCALES, torch.zeros(64).int()), WrongShape, "different sizes"),
        (lambda: tile_ops.from_gptq(WORDS, ZEROS, SCALES, torch.zeros(8).int()), WrongShape, "g_idx has shape (8,)"),
        (lambda: tile_ops.from_awq(torch.zeros(32, 1).int(), ZEROS, SCALES), WrongValue, "groups of 16 rows"),
        (lambda: tile_ops.from_bitsandbytes(BYTES, SCALES, shape=(8, 64), quant_type="int8"), WrongValue, "'int8'"),
        (lambda: tile_ops.from_bitsandbytes(BYTES, SCALES, shape=(8, 96)), WrongShape, "rows of 96 weights"),
        (lambda: tile_ops.from_bitsandbytes(BYTES, SCALES, shape=(8, 64)), WrongShape, "16 scales; expected 256"),
        (
            lambda: tile_ops.from_bitsandbytes(BYTES, torch.zeros(8, dtype=torch.uint8), shape=(8, 64)),
            WrongDtype,
            "absmax is torch.uint8",
        ),
    ],
)
def test_refuses(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call()
