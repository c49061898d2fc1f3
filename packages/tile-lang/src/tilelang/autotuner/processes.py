"""Processes that do tasks for the autotuner, one at a time each, and are replaced when one dies or takes too long.

Tasks and answers are lines of JSON; nothing is pickled, and the user's main module is not imported again. An answer
comes on a pipe of its own: whatever a kernel prints cannot disturb it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

Task = dict[str, Any]
Answer = dict[str, Any]
STARTING = 120.0  # seconds for a process to import what it needs, on a busy machine


class Worker:
    """One process, `python -m tilelang.autotuner.worker ROLE`."""

    def __init__(self, role: str, arguments: Sequence[str] = ()) -> None:
        self._log = tempfile.TemporaryFile()
        answers, theirs = os.pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilelang.autotuner.worker", role, str(theirs), *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs,),
            env=environment,
        )
        os.close(theirs)
        self.answers = answers
        self._rest = b""
        self.task, self.since, self.started = -1, 0.0, False

    def give(self, index: int, task: Task) -> None:
        self.task, self.since, self.started = index, time.monotonic(), False
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:  # it is dead, which reading will tell
            pass

    def read(self) -> Answer | None:
        """The answer, once all of it is there; an error when the process has died."""
        data = os.read(self.answers, 1 << 16)
        if not data:
            return {"error": f"the process died ({self._end()})", "died": True}
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer: Answer = json.loads(line)
            if not answer.get("started"):
                return answer
            self.started, self.since = True, time.monotonic()
        return None

    def is_late(self, timeout: float) -> bool:
        """Whether its task takes too long; until it has begun, the process has `STARTING` seconds more."""
        return time.monotonic() - self.since > timeout + (0 if self.started else STARTING)

    def _end(self) -> str:
        """How it ended, with the last words that it said."""
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return how + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        os.close(self.answers)
        self._log.close()


def run_all(
    role: str,
    tasks: Sequence[Task],
    *,
    workers: int,
    timeout: float,
    done: Callable[[int, Answer], None],
    arguments: Sequence[str] = (),
    before: Callable[[int, Task], Task] = lambda index, task: task,
) -> None:
    """Do all tasks with up to `workers` processes; `done` hears of each as it ends, in whatever order.

    A task that takes more than `timeout` seconds is ended with its process; the time to start one counts for nothing:
    a process says when it is ready. `before` may complete a task when its turn comes. All processes have ended when this
    returns or raises.
    """
    waiting = list(enumerate(tasks))[::-1]
    busy: list[Worker] = []
    idle: list[Worker] = []
    try:
        while waiting or busy:
            while waiting and (idle or len(busy) < workers):
                worker = idle.pop() if idle else Worker(role, arguments)
                index, task = waiting.pop()
                worker.give(index, before(index, task))
                busy.append(worker)
            readable, _, _ = select.select([w.answers for w in busy], [], [], 0.2)
            for worker in list(busy):
                answer = worker.read() if worker.answers in readable else None
                if answer is None:
                    if not worker.is_late(timeout):
                        continue
                    answer = {"error": f"no end after {timeout:g} s", "died": True}
                busy.remove(worker)
                if answer.get("died"):
                    worker.stop()
                else:
                    idle.append(worker)
                done(worker.task, answer)
    finally:
        for worker in (*busy, *idle):
            worker.stop()
