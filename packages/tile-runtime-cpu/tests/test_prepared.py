"""Prepared calls without Python: what they take, what goes on to Python, and what they tell."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tile_runtime.artifact import Artifact
from tile_runtime.errors import ArgumentAlignmentError, ArgumentCountError, ArgumentTypeError, KernelAssertError
from tile_runtime.native import HEADER_BYTES, Words
from tile_runtime_cpu import prepared
from tile_runtime_cpu.plugin import DEVICE
from tile_runtime_cpu.pool import POOL

Maker = Callable[..., Artifact]
OUT = [{"name": "out", "dtype": "int64", "shape": [["dim", "n"]], "access": "rw"}]
N: dict[str, Any] = {"dims": [{"name": "n", "param": "out", "axis": 0}]}
FILL = [["param", "out"], ["value", "int64", ["*", ["dim", "n"], 5]]]


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    POOL.stop()


def is_native(function: Any) -> bool:
    return isinstance(getattr(function, "__self__", None), Words)


def fill(artifact: Maker, **more: Any) -> Any:
    return DEVICE.load(artifact("fill", OUT, grid=["dim", "n"], args=FILL, **N, **more))


def test_a_call_reads_addresses_alone(artifact: Maker) -> None:
    call = fill(artifact, outputs=["out"]).prepare(torch.zeros(9, dtype=torch.int64))
    assert is_native(call)
    for out in (torch.zeros(9, dtype=torch.int64), torch.zeros(20, dtype=torch.int64)[3:12]):
        for _ in range(3):
            assert call(out) is out
            np.testing.assert_array_equal(out.numpy(), np.arange(9) * 3 + 45)
            out.zero_()


def test_it_runs_while_the_pool_starts_and_stops(artifact: Maker) -> None:
    """A pool without threads (stopped, or a child of fork) is for Python to start."""
    out = torch.zeros(9, dtype=torch.int64)
    call = fill(artifact).prepare(out)
    for _ in range(3):
        POOL.stop()
        call(out.zero_())
        assert out.tolist() == [3 * i + 45 for i in range(9)]
    assert POOL.threads
    child = os.fork()
    if not child:
        call(out.zero_())
        os._exit(out.tolist() != [3 * i + 45 for i in range(9)])
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_tensor_goes_to_python(artifact: Maker) -> None:
    call = fill(artifact).prepare(torch.zeros(9, dtype=torch.int64))
    array = np.zeros(9, np.int64)
    call(array)
    np.testing.assert_array_equal(array, np.arange(9) * 3 + 45)
    with pytest.raises(ArgumentTypeError, match="out is expected to be a tensor"):
        call("x")
    with pytest.raises(ArgumentCountError, match="takes 1 tensors"):
        call()


def test_another_alignment_goes_to_python(artifact: Maker) -> None:
    params = [{**OUT[0], "align": 16}]
    call = DEVICE.load(artifact("fill", params, grid=["dim", "n"], args=FILL, **N)).prepare(torch.zeros(9).long())
    with pytest.raises(ArgumentAlignmentError, match="out is at address"):
        call(torch.zeros(20, dtype=torch.int64)[1:10])


def test_the_variant_is_that_of_the_addresses(artifact: Maker) -> None:
    made = artifact("fill", OUT, grid=["dim", "n"], args=FILL, **N)
    data = made.manifest.to_json()
    first = data["variants"][0]
    second = {**first, "launches": [{**first["launches"][0], "args": [["param", "out"], ["value", "int64", 7]]}]}
    first["guard"] = ["==", ["floormod", ["address", "out"], 32], 0]
    data["variants"].append(second)
    kernel = DEVICE.load(Artifact(type(made.manifest).from_json(data), {"kernels.o": made.read("kernels.o")}))
    bare = torch.zeros(40, dtype=torch.int64)
    begin = -bare.data_ptr() % 32 // 8
    whole, odd = bare[begin : begin + 9], bare[begin + 9 : begin + 18]
    for example in (whole, odd):
        call = kernel.prepare(example)
        assert is_native(call)
        for _ in range(2):
            assert call(whole) is None
            assert whole.tolist() == [3 * i + 45 for i in range(9)]
            assert call(odd) is None
            assert odd.tolist() == [3 * i + 7 for i in range(9)]
            bare.zero_()


def test_scalars_and_several_launches(artifact: Maker) -> None:
    params = [*OUT, {"name": "x", "kind": "scalar", "dtype": "int64"}]
    made = artifact("fill", params, grid=["dim", "n"], args=[["param", "out"], ["param", "x"]], **N)
    data = made.manifest.to_json()
    launch = data["variants"][0]["launches"][0]
    data["variants"][0]["launches"] = [launch, {**launch, "grid": [0, 1, 1]}, {**launch, "grid": [2, 1, 1]}]
    data["variants"][0]["launches"][2]["args"] = [["param", "out"], ["dim", "n"]]
    kernel = DEVICE.load(Artifact(type(made.manifest).from_json(data), {"kernels.o": made.read("kernels.o")}))
    out = torch.zeros(4, dtype=torch.int64)
    call = kernel.prepare(out, -100)
    assert is_native(call)
    call(out)
    assert out.tolist() == [4 - 100, 7 - 97, -94, -91]  # the kernel adds


def test_a_failed_assertion_raises(artifact: Maker) -> None:
    more = {"errors": ["the seventh block"], **N}
    made = artifact("fails", OUT, grid=["dim", "n"], args=[["param", "out"], ["value", "int64", 1]], **more)
    out = torch.zeros(9, dtype=torch.int64)
    call = DEVICE.load(made).prepare(out)
    assert is_native(call)
    before = sys.getrefcount(out)
    for _ in range(100):
        with pytest.raises(KernelAssertError, match="fails.*the seventh block"):
            call(out)
    assert sys.getrefcount(out) == before


def test_a_tensor_that_no_kernel_uses_may_be_none(artifact: Maker) -> None:
    params = [*OUT, {"name": "spare", "dtype": "float32", "shape": [4], "access": "none"}]
    out = torch.zeros(9, dtype=torch.int64)
    call = DEVICE.load(artifact("fill", params, grid=["dim", "n"], args=FILL, **N)).prepare(out, None)
    assert is_native(call)
    for spare in (None, torch.zeros(4)):
        call(out.zero_(), spare)
        assert out[1] == 48


def test_native_callers_pass_addresses(artifact: Maker) -> None:
    params = [{**OUT[0], "align": 16}]
    out = torch.zeros(10, dtype=torch.int64)
    call: Any = DEVICE.load(artifact("fill", params, grid=["dim", "n"], args=FILL, **N)).prepare(out[:9])
    launch = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))(call.__self__.launch)
    words = id(call.__self__) + HEADER_BYTES
    POOL.start()
    assert launch(words, (ctypes.c_uint64 * 1)(out.data_ptr())) == 0
    assert out.tolist() == [*(3 * i + 45 for i in range(9)), 0]
    assert launch(words, (ctypes.c_uint64 * 1)(out.data_ptr() + 8)) == -2
    POOL.stop()
    assert launch(words, (ctypes.c_uint64 * 1)(out.data_ptr())) == -2


def test_without_the_code_python_runs_prepared_calls(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_image", lambda: None)
    out = torch.zeros(9, dtype=torch.int64)
    call = fill(artifact).prepare(out)
    assert not is_native(call)
    call(out)
    assert out[1] == 48


def test_threads_call_at_once(artifact: Maker) -> None:
    call, wrong = fill(artifact).prepare(torch.zeros(50, dtype=torch.int64)), []
    expected = torch.arange(50) * 3 + 250

    def work() -> None:
        for _ in range(300):
            out = torch.zeros(50, dtype=torch.int64)
            call(out)
            if not torch.equal(out, expected):
                wrong.append(out)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
