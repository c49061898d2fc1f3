"""Programs that run beside each other, one at a time: the warps of `T.ws`, walked in an order in which they can run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Stuck(Exception):
    """No program can go on: `waits` has what each said it waits for."""

    def __init__(self, waits: list[Any]) -> None:
        super().__init__()
        self.waits = waits


class _Ended(BaseException):
    """Unwinds a program that is not wanted any more."""


class _Program:
    """A walk in a thread of its own, as it is suspended in the midst of statements within statements."""

    def __init__(self, walk: Callable[[], None], back: threading.Semaphore) -> None:
        self.until: Callable[[], bool] = lambda: True
        self.waits_at: Any = None
        self.error: BaseException | None = None
        self.over = self.wanted_no_more = False
        self.go, self.back = threading.Semaphore(0), back
        self.thread = threading.Thread(target=self._run, args=(walk,), daemon=True)

    def _run(self, walk: Callable[[], None]) -> None:
        self.go.acquire()
        try:
            if not self.wanted_no_more:
                walk()
        except _Ended:
            pass
        except BaseException as error:  # raised again by who runs the programs
            self.error = error
        self.over = True
        self.back.release()

    def resume(self) -> None:
        self.go.release()
        self.back.acquire()

    def suspend(self) -> None:
        self.back.release()
        self.go.acquire()
        if self.wanted_no_more:
            raise _Ended


class Turns:
    """Runs programs in turns: each goes on until `wait` finds that what it waits for has not happened yet."""

    def __init__(self) -> None:
        self._back = threading.Semaphore(0)
        self._current: _Program | None = None

    def run(self, walks: Sequence[Callable[[], None]]) -> None:
        """To the end of all; raises `Stuck`, or what a program raises."""
        programs = [_Program(walk, self._back) for walk in walks]
        with self._started(programs):
            left = list(programs)
            while left:
                able = [p for p in left if p.until()]
                if not able:
                    raise Stuck([p.waits_at for p in left])
                for program in able:
                    self._current = program
                    program.resume()
                    if program.error is not None:
                        raise program.error
                left = [p for p in left if not p.over]

    def wait(self, until: Callable[[], bool], at: Any) -> None:
        """Lets the other programs go on until the condition holds; `at` says what it is, should it never."""
        program = self._current
        assert program is not None
        if until():
            return
        program.until, program.waits_at = until, at
        program.suspend()
        program.until = lambda: True

    @contextmanager
    def _started(self, programs: Sequence[_Program]) -> Iterator[None]:
        for program in programs:
            program.thread.start()
        try:
            yield
        finally:
            for program in programs:
                if not program.over:
                    program.wanted_no_more = True
                    program.resume()
                program.thread.join()
