"""What the autotuner's processes run: `python -m tilelang.autotuner.worker compile|measure PIPE [DEVICE=MODULE:OBJECT]`.

One task, a line of JSON, comes in on stdin; its answer goes out on the pipe.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from tilelang.autotuner.processes import Answer, Task


def serve(work: Callable[[Task], Answer], pipe: int, harmless: type[Exception]) -> None:
    """Do tasks until stdin ends. An exception is an answer too, and if it is not `harmless` the process's last one: a
    fault on a GPU breaks its context for every later kernel."""
    for line in sys.stdin:
        os.write(pipe, b'{"started": true}\n')
        try:
            answer = work(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "died": not isinstance(error, harmless)}
        os.write(pipe, json.dumps(answer).encode() + b"\n")


def announce(plugin: str) -> None:
    """Register a device of packages that lie on the path without being installed: cuda=tile_runtime_cuda.plugin:DEVICE."""
    from tile_runtime import registry
    from tile_runtime.entry_points import EntryPoint

    name, _, value = plugin.partition("=")
    registry.register(EntryPoint(name, value).load())


def main(role: str, pipe: int, plugins: list[str]) -> None:
    for plugin in plugins:
        announce(plugin)
    if role == "compile":
        from tilelang.autotuner.compile_task import compile_task

        serve(compile_task, pipe, Exception)
    else:
        from tilelang.autotuner.measure_task import Measuring

        serve(Measuring().task, pipe, AssertionError)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
