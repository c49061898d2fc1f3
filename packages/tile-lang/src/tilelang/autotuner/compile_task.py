"""Compiling one configuration: in a process of the autotuner's, or in the caller's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tilelang import target as targets
from tilelang.autotuner.processes import Answer, Task
from tilelang.kernel import is_partial
from tilelang.options import Options, PassConfigKey
from tilelang.target import Target


def task_of(func: Any, target: Target, options: Options, key: str, file: Path) -> Task:
    """A traced function and all that compiling needs, as JSON. `file` is where the artifact goes."""
    from tilelang.ir import serial

    return {
        "func": serial.dumps(func),
        "target": str(target),
        "options": dataclasses.asdict(options),
        "key": key,
        "file": str(file),
    }


def compile_task(task: Task) -> Answer:
    """Do it, and write the artifact."""
    from tilelang.ir import serial

    made = task["options"]
    configs = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in made["pass_configs"])
    options = Options(made["execution"], configs, made["verbose"], tuple(made["compile_flags"]))
    compile_to(serial.loads(task["func"]), targets.parse(task["target"]), options, task["key"], Path(task["file"]))
    return {"file": task["file"]}


def compile_to(func: Any, target: Target, options: Options, key: str, file: Path) -> None:
    """Compile and write. With dynamic dimensions all variants, as who measures may have no compiler."""
    plugin = targets.compiler_for(target.kind).load()
    artifact = plugin.compile(func, target=target, options=options, key=key)
    while artifact.manifest.dims and is_partial(artifact.manifest):
        level = len(artifact.manifest.variants)
        more = plugin.compile(func, target=target, options=options.with_config(PassConfigKey.TL_VARIANT, level))
        artifact = getattr(plugin, "join", type(artifact).joined)(artifact, more)
    artifact.save(file)
