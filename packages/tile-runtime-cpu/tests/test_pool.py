from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_runtime import shipped_code
from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache
from tile_runtime.errors import KernelAssertError
from tile_runtime_cpu import build, pool
from tile_runtime_cpu.plugin import DEVICE
from tile_runtime_cpu.pool import POOL, run_inline

Maker = Callable[..., Artifact]
OUT = [{"name": "out", "dtype": "int64", "shape": [["dim", "n"]], "access": "rw"}]
N = {"dims": [{"name": "n", "param": "out", "axis": 0}]}
BYTES = [
    {"name": "out", "dtype": "uint8", "shape": [["dim", "n"]], "access": "rw"},
    {"name": "s", "kind": "scalar", "dtype": "int64"},
]


def start(monkeypatch: pytest.MonkeyPatch, threads: int, inline_us: float = 20) -> None:
    """Starts the pool anew with that many threads."""
    monkeypatch.setenv("TILELANG_NUM_THREADS", str(threads))
    monkeypatch.setattr(pool, "INLINE_US", inline_us)
    POOL.stop()
    POOL.start()


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    POOL.stop()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("inline_us", [0, 20])
def test_each_block_runs_once(artifact: Maker, monkeypatch: pytest.MonkeyPatch, threads: int, inline_us: float) -> None:
    start(monkeypatch, threads, inline_us)
    assert POOL.threads == threads
    kernel = DEVICE.load(artifact("fill", OUT, grid=["dim", "n"], args=[["param", "out"], ["value", "int64", 5]], **N))
    for n in (1, 2, 3, 7, 64, 1000, 4097):
        for _ in range(20):
            out = np.zeros(n, np.int64)
            kernel(out)
            np.testing.assert_array_equal(out, np.arange(n) * 3 + 5)


def test_work_is_shared(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 2)
    kernel = DEVICE.load(artifact("slow", OUT, grid=["dim", "n"], **N))
    out = np.zeros(2000, np.int64)
    worker = next(t for t in threading.enumerate() if t.name == "tile-worker-1")
    clock = time.pthread_getcpuclockid(worker.ident or 0)
    # The worker's share of the processor time that both spend. Other processes may hold the processors for a while:
    # how soon the worker gets its turn is the system's business, that it gets one is the pool's.
    share, deadline = 0.0, time.monotonic() + 60
    while share < 0.1 and time.monotonic() < deadline:
        helped, own = time.clock_gettime(clock), time.thread_time()
        for _ in range(50):
            kernel(out)
        helped, own = time.clock_gettime(clock) - helped, time.thread_time() - own
        share = helped / (helped + own)
    assert share >= 0.1
    assert set(out) == {501}  # the chain ends at 1, after 500 steps


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("tile-worker")]


def test_no_more_threads_take_part_than_are_asked_for(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three workers that are awake all the time."""
    wanted = 4
    asked = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: wanted)
    monkeypatch.setattr(pool, "torch_threads", lambda: ctypes.cast(asked, ctypes.c_void_p).value)
    monkeypatch.setattr(pool, "SPIN_US", 10_000_000)
    start(monkeypatch, 4, 0)
    kernel = DEVICE.load(artifact("who", OUT, grid=["dim", "n"], **N))
    out = np.zeros(4000, np.int64)

    def took_part() -> int:
        kernel(out)
        return len(set(out))

    deadline = time.monotonic() + 60
    while took_part() < 3:  # with few processors their turns come late
        assert time.monotonic() < deadline
    for wanted, most in ((2, 2), (1, 1), (3, 3), (1, 1), (0, 1)):
        assert max(took_part() for _ in range(20)) <= most


TORCH = """
import sys, threading, time
import torch, numpy as np
from tile_runtime.artifact import Artifact
from tile_runtime_cpu.plugin import DEVICE
kernel = DEVICE.load(Artifact.load(sys.argv[1]))
out = np.zeros(20000, np.int64)
def helped():
    kernel(out)
    (worker,) = [t for t in threading.enumerate() if t.name.startswith("tile-worker")][:1]
    clock = time.pthread_getcpuclockid(worker.ident)
    time.sleep(0.02)
    before = time.clock_gettime(clock)
    for _ in range(50):
        kernel(out)
    return time.clock_gettime(clock) - before
torch.set_num_threads(1)
assert helped() < 1e-3, helped()
torch.set_num_threads(2)
deadline = time.monotonic() + 60
while helped() < 1e-2:
    assert time.monotonic() < deadline
print("good")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has no workers")
def test_torch_tells_how_many_threads_there_are(artifact: Maker, tmp_path: Path) -> None:
    artifact("slow", OUT, grid=["dim", "n"], **N).save(tmp_path / "slow.tile")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {k: v for k, v in environment.items() if k not in ("TILELANG_NUM_THREADS", "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", TORCH, str(tmp_path / "slow.tile")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("good\n", 0), done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other processor to keep off")
def test_workers_that_are_awake_keep_off_the_callers_processor(
    artifact: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that had moved to its worker's processor shared it: launches of 4.5 ms took 8.7."""
    monkeypatch.setattr(pool, "SPIN_US", 10_000_000)  # nobody sleeps
    start(monkeypatch, 2, 0)
    kernel = DEVICE.load(artifact("slow", OUT, grid=["dim", "n"], **N))
    out = np.zeros(64, np.int64)
    allowed = os.sched_getaffinity(0)
    try:
        for cpu in sorted(allowed)[:2] * 2:
            os.sched_setaffinity(0, {cpu})
            kernel(out)
            (worker,) = workers()
            assert cpu not in os.sched_getaffinity(worker.native_id or 0)
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("inline_us", [0, 20])
@pytest.mark.parametrize("shared", [1, 64, 1000, 65_536, 65_537, 1 << 20])
def test_scratch_is_aligned_and_private(
    artifact: Maker, monkeypatch: pytest.MonkeyPatch, inline_us: float, shared: int
) -> None:
    start(monkeypatch, 4, inline_us)
    args = [["param", "out"], ["param", "s"]]
    kernel = DEVICE.load(artifact("scratch", BYTES, grid=["dim", "n"], args=args, shared=shared, **N))
    out = np.zeros(40, np.uint8)
    kernel(out, shared)
    np.testing.assert_array_equal(out, np.arange(40))


def test_too_much_scratch_is_a_memory_error(artifact: Maker) -> None:
    kernel = DEVICE.load(
        artifact("scratch", BYTES, grid=["dim", "n"], shared=1 << 60, args=[["param", "out"], ["param", "s"]], **N)
    )
    with pytest.raises(MemoryError, match=r"TLR031: scratch \(scratch\): no memory"):
        kernel(np.zeros(4, np.uint8), 1)


@pytest.mark.parametrize("inline_us", [0, 20])
def test_the_first_error_comes_back_as_its_text(
    artifact: Maker, monkeypatch: pytest.MonkeyPatch, inline_us: float
) -> None:
    start(monkeypatch, 2, inline_us)
    params = [{"name": "code", "kind": "scalar", "dtype": "int32"}]
    kernel = DEVICE.load(artifact("fails", params, grid=100, errors=["x must be positive", "second"]))
    for _ in range(50):
        assert kernel(0) is None
        with pytest.raises(KernelAssertError, match=r"TLR030: fails \(fails\): second"):
            kernel(2)
        with pytest.raises(AssertionError, match="unknown error code 3"):
            kernel(3)


def test_callers_in_many_threads(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 3, 0)
    kernel = DEVICE.load(artifact("fill", OUT, grid=["dim", "n"], args=[["param", "out"], ["value", "int64", 5]], **N))
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(300):
            out = np.zeros(n, np.int64)
            kernel(out)
            if not np.array_equal(out, np.arange(n) * 3 + 5):
                wrong.append(n)

    callers = [threading.Thread(target=work, args=(n,)) for n in (2, 50, 1000, 3000)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_sleeping_workers_wake(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 2, 0)
    kernel = DEVICE.load(artifact("fill", OUT, grid=["dim", "n"], args=[["param", "out"], ["value", "int64", 0]], **N))
    for i in range(200):
        if i % 4 == 0:
            time.sleep(0.0005)
        out = np.zeros(50, np.int64)
        kernel(out)
        assert out[49] == 147


def test_stop_ends_the_threads_and_the_next_launch_starts_them(
    artifact: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, 4)
    before = workers()
    assert len(before) == 3
    POOL.stop()
    assert not any(t.is_alive() for t in before)
    kernel = DEVICE.load(artifact("nothing", [], grid=8))
    kernel()
    assert len(workers()) == 3


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
from tile_runtime.artifact import Artifact
from tile_runtime_cpu import pool
from tile_runtime_cpu.plugin import DEVICE
pool.INLINE_US = 0
kernel = DEVICE.load(Artifact.load(sys.argv[1]))
def check():
    for n in (3, 500):
        out = np.zeros(n, np.int64)
        kernel(out)
        assert (out == np.arange(n) * 3 + 5).all()
check()
busy = threading.Thread(target=lambda: [check() for _ in range(2000)], daemon=True)
busy.start()  # forks happen while a launch is under way
for _ in range(5):
    child = os.fork()
    if child == 0:
        assert not [t for t in threading.enumerate() if t.name.startswith("tile-worker")]
        for _ in range(20):
            check()
        assert pool.POOL.threads == 3
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
check()
print("good")
"""


def test_a_forked_child_starts_threads_of_its_own(artifact: Maker, tmp_path: Path) -> None:
    args = [["param", "out"], ["value", "int64", 5]]
    artifact("fill", OUT, grid=["dim", "n"], args=args, **N).save(tmp_path / "fill.tile")
    environment = {**os.environ, "TILELANG_NUM_THREADS": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORK, str(tmp_path / "fill.tile")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("good\n", 0), done.stderr


def test_without_a_native_pool_launches_run_in_one_thread(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    POOL.stop()
    monkeypatch.setattr(POOL, "_image", None)
    monkeypatch.setattr(build.POOL, "object", lambda: (None, "no TVM"))
    kernel = DEVICE.load(artifact("fill", OUT, grid=["dim", "n"], args=[["param", "out"], ["value", "int64", 5]], **N))
    out = np.zeros(100, np.int64)
    kernel(out)
    np.testing.assert_array_equal(out, np.arange(100) * 3 + 5)
    assert POOL.run is run_inline
    assert POOL.describe() | {"inline_us": 0} == {
        "threads": 1,
        "pool": "none, launches use one thread: no TVM",
        "inline_us": 0,
    }
    scratch = DEVICE.load(
        artifact("scratch", BYTES, grid=["dim", "n"], shared=100, args=[["param", "out"], ["param", "s"]], **N)
    )
    raw = np.zeros(4, np.uint8)
    scratch(raw, 100)
    np.testing.assert_array_equal(raw, np.arange(4))


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9999"])
def test_a_wrong_number_of_threads_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TILELANG_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"TILELANG_NUM_THREADS is '{text}'; it must be a number from 1 to 4096"):
        pool.thread_count()
    assert "TILELANG_NUM_THREADS" in str(POOL.describe()["threads"])


def test_the_object_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache", enabled=True)
    assert build.POOL.find(cache) == (None, "TVM will compile it at the first launch")
    first, origin = build.POOL.object(cache)
    assert origin == "compiled by TVM"
    monkeypatch.setattr(shipped_code, "compile_llvm", lambda text: pytest.fail("compiled twice"))
    assert build.POOL.object(cache) == (first, "cache")
    packaged = tmp_path / "pool.o"
    packaged.write_bytes(b"packaged")
    monkeypatch.setattr(build.POOL, "packaged_file", lambda: packaged)
    assert build.POOL.object(cache) == (b"packaged", "packaged")


def test_a_machine_without_tvm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_code.importlib.util, "find_spec", lambda name: None)
    data, reason = build.POOL.object(Cache(tmp_path / "cache", enabled=True))
    assert data is None
    assert "TVM is not installed" in reason


def test_a_tvm_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Any:
        raise RuntimeError("this TVM was built without LLVM")

    monkeypatch.setattr(shipped_code, "compile_llvm", broken)
    data, reason = build.POOL.object(Cache(enabled=False))
    assert data is None
    assert "RuntimeError: this TVM was built without LLVM" in reason
