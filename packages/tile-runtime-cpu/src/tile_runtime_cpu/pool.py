"""The persistent worker threads that share the blocks of a launch.

The workers are Python daemon threads that stay in native code (pool.ll) and so never hold the interpreter's lock. A
launch is one call of `pool.run(pool.address, job)`. Small work (below INLINE_US, by a running estimate of the time of a
block) stays in the calling thread. One caller has the workers at a time; others meanwhile run their launches alone.

A process that forks gives its child no threads: there, the first launch starts new ones.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tile_runtime.cache import Cache
from tile_runtime.errors import LoadError
from tile_runtime.memory import Mapping

from . import build, cpuid
from .elf import Image
from .imports import library_address

#: Work below this is not shared. Sharing costs the caller 0.3 us while workers are awake (measured, 2 cores of a VM).
INLINE_US = 20
#: Sleeping workers are woken for work of this many INLINE_US, or in a burst of launches: on that VM waking one costs
#: 1.5 to 30 us, and it arrives 10 to 100 us later. 24 us of work took 29 us shared with a sleeper, 366 us took 214.
WAKE_FACTOR = 5
#: A thread without work spins this long before it sleeps: launches that follow each other find it awake.
SPIN_US = 50

#: fn, address of the estimate, blocks, scratch bytes, number of pointers, 0; then pointers and integers.
JOB_HEADER = struct.Struct("=QQqqqq")
_POOL_BYTES = 576 + 4 * 4096
_THREADS, _INLINE, _SPIN, _WAKE, _CPU, _MOVABLE, _ASKED, _ALLOWED, _TIDS = 264, 272, 280, 288, 304, 308, 312, 320, 576
NO_MEMORY = -12

Run = Callable[[int, bytes], int]
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def thread_count() -> int:
    """TILELANG_NUM_THREADS, else the number of CPUs this process may use. Raises ValueError if it is not 1 to 4096.

    Without the variable, where torch is imported, a launch is shared by no more than `torch.get_num_threads()` of them.
    """
    text = os.environ.get("TILELANG_NUM_THREADS", "")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise ValueError(f"TILELANG_NUM_THREADS is {text!r}; it must be a number from 1 to 4096")
    return int(text)


def torch_threads() -> int:
    """The address of the function behind `torch.get_num_threads()`, which takes nothing and returns int; 0 without torch, or
    where TILELANG_NUM_THREADS says how many threads there are."""
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None or os.environ.get("TILELANG_NUM_THREADS"):
        return 0
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.cast(library._ZN2at15get_num_threadsEv, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):  # a torch that is built otherwise
        return 0


class Pool:
    """The workers of this process. `run(address, job)` runs a job to its end and returns its result.

    `run` is replaced as the state changes: at first (and in a child of fork) by what starts the threads, then by the
    native function; without a native pool it is a plain Python loop over nothing but this thread.
    """

    def __init__(self) -> None:
        self._memory = Mapping(_POOL_BYTES)
        self.address = self._memory.address
        self.origin = "not started"
        self.threads = 0
        self._workers: list[threading.Thread] = []
        self._native: Any = None
        self._image: Image | None = None
        self._lock = threading.Lock()
        self.run: Run = self._start_and_run

    def start(self) -> None:
        """Starts the threads if they are not running. Called by the first launch."""
        with self._lock:
            if self.run != self._start_and_run:
                return
            threads = thread_count()
            if self._image is None and not self._load():
                self.threads = 1
                self.run = run_inline
                return
            self._memory.write(0, bytes(_POOL_BYTES))
            per_us = self._ticks_per_us()
            inline = INLINE_US * per_us
            values = {_THREADS: threads, _INLINE: inline, _SPIN: SPIN_US * per_us, _WAKE: WAKE_FACTOR * inline}
            for offset, value in values.items():
                self._memory.write(offset, struct.pack("=q", int(value)))
            self._memory.write(_ASKED, struct.pack("=Q", torch_threads()))
            assert self._image is not None
            work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._image.address("tl_worker"))
            for i in range(threads - 1):
                worker = threading.Thread(target=work, args=(self.address,), name=f"tile-worker-{i + 1}", daemon=True)
                worker.start()
                self._workers.append(worker)
            self._make_movable()
            self.threads = threads
            self.run = self._native

    def run_address(self) -> int:
        """Address of `tl_run`, for native code that calls it once threads have started; 0 without a native pool."""
        with self._lock:
            if self._image is None and not self._load():
                return 0
            assert self._image is not None
            return self._image.address("tl_run")

    def stop(self) -> None:
        """Ends the threads (at exit, and in tests); the next launch starts them again."""
        with self._lock:
            if self._workers and self._image is not None:
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._image.address("tl_stop"))(self.address)
                for worker in self._workers:
                    worker.join(timeout=1.0)
            self._workers.clear()
            self._memory.write(_THREADS, bytes(8))
            self.run = self._start_and_run

    def forget(self) -> None:
        """After fork, in the child: the threads are the parent's; start anew when first needed."""
        self._lock = threading.Lock()
        self._workers.clear()
        self._memory.write(0, bytes(_POOL_BYTES))
        self.run = self._start_and_run

    def describe(self) -> dict[str, Any]:
        """For `doctor`: threads and where the native code came from (or why there is none). Starts nothing."""
        started = self.run != self._start_and_run
        try:
            threads: int | str = self.threads if started else thread_count()
        except ValueError as error:
            threads = str(error)
        origin = self.origin if started else f"not started; {build.POOL.find(Cache())[1]}"
        return {"threads": threads, "pool": origin, "inline_us": INLINE_US}

    def _start_and_run(self, address: int, job: bytes) -> int:
        self.start()
        return self.run(address, job)

    def _load(self) -> bool:
        data, self.origin = build.POOL.object()
        if data is None:
            self.origin = f"none, launches use one thread: {self.origin}"
            return False
        try:
            symbols = {name: library_address(name) or 0 for name in ("aligned_alloc", "free")}
            self._image = Image([("pool.o", data)], symbols)
        except LoadError as error:
            self.origin = f"none, launches use one thread: {error}"
            return False
        self._native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p)(self._image.address("tl_run"))
        return True

    def _make_movable(self) -> None:
        """Lets callers keep sleeping workers off their own processor (pool.ll, @keep_off), where there are others."""
        allowed = os.sched_getaffinity(0)
        if len(allowed) < 2 or max(allowed) > 1023 or "rdtscp" not in cpuid.features():
            return
        tids = [worker.native_id or 0 for worker in self._workers]
        mask = sum(1 << cpu for cpu in allowed)
        self._memory.write(_ALLOWED, mask.to_bytes(128, "little"))
        self._memory.write(_TIDS, struct.pack(f"={len(tids)}i", *tids))
        self._memory.write(_CPU, struct.pack("=ii", -1, len(tids)))

    def _ticks_per_us(self) -> float:
        """Speed of the processor's clock, over a fifth of a millisecond: 1 % is more than good enough here."""
        assert self._image is not None
        ticks = ctypes.CFUNCTYPE(ctypes.c_int64)(self._image.address("tl_ticks"))
        t0, n0 = ticks(), time.perf_counter_ns()
        while time.perf_counter_ns() - n0 < 200_000:
            pass
        t1, n1 = ticks(), time.perf_counter_ns()
        return (t1 - t0) * 1000 / (n1 - n0)


def run_inline(address: int, job: bytes) -> int:
    """What `tl_run` does, without native code: all blocks in this thread. `address` is not used."""
    fn, _, blocks, scratch, count, _ = JOB_HEADER.unpack_from(job)
    pointers = struct.unpack_from(f"={count}Q", job, JOB_HEADER.size)
    area = ctypes.create_string_buffer(scratch + 64)
    aligned = -(-ctypes.addressof(area) // 64) * 64
    args = (ctypes.c_uint64 * (count + 1))(*pointers, aligned)
    numbers = ctypes.create_string_buffer(job[JOB_HEADER.size + 8 * count :])
    return int(_ENTRY(fn)(ctypes.addressof(args), ctypes.addressof(numbers), 0, blocks))


#: The pool of this process.
POOL = Pool()


def _at_exit() -> None:
    with contextlib.suppress(Exception):
        POOL.stop()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forget)
