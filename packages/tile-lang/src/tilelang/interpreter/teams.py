"""Warpgroups with work of their own, and blocks that wait for each other, taken turns with: one runs until it has to wait
for what another has yet to do."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence


class Deadlock(Exception):
    """All that are left wait for each other."""


class _Abandoned(BaseException):
    """Another one has failed: what is left of this one is not wanted."""


class Turns:
    """Functions that run in threads of their own, one at a time, in their order; `until` passes the turn on.

    What one of them raises, `run` raises when all have ended. `outer`: the turns that the one who runs these takes part
    in, which goes on when none of these can.
    """

    def __init__(self, works: Sequence[Callable[[Turns], None]], outer: Turns | None = None) -> None:
        self._works, self._outer = works, outer
        self._turn = 0
        self._waits: list[Callable[[], bool] | None] = [None] * len(works)
        self._done = [False] * len(works)
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def run(self) -> None:
        """Returns when all have ended."""
        here = [contextvars.copy_context() for _ in self._works]
        threads = [threading.Thread(target=c.run, args=(self._thread, number)) for number, c in enumerate(here)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def until(self, condition: Callable[[], bool]) -> None:
        """Let others run until the condition holds. Raises Deadlock if none of them can."""
        number = self._turn  # who calls this is who runs
        while not condition():
            self._waits[number] = condition
            if self._pass_on():
                self._await_turn(number)  # also given where the others have ended
                continue
            self._waits[number] = None
            if self._outer is None:
                raise Deadlock
            waits = [*(wait for wait in self._waits if wait is not None), condition]
            self._outer.until(lambda: any(wait() for wait in waits))

    def _thread(self, number: int) -> None:
        try:
            self._await_turn(number)
            self._works[number](self)
        except BaseException as error:  # _Abandoned too: it may come from the turns around these
            self._error = self._error or error
        self._done[number] = True
        if not self._pass_on() and not all(self._done):
            with self._changed:
                self._turn = self._done.index(False)
                self._changed.notify_all()

    def _pass_on(self) -> bool:
        """Give the turn to the next one that can go on; False if there is none."""
        count = len(self._works)
        for step in range(1, count + 1):
            number = (self._turn + step) % count
            wait = self._waits[number]
            if not self._done[number] and (self._error is not None or wait is None or wait()):
                with self._changed:
                    self._waits[number] = None
                    self._turn = number
                    self._changed.notify_all()
                return True
        return False

    def _await_turn(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or self._error is not None)
        if self._error is not None:
            raise _Abandoned
