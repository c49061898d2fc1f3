"""The way of a kernel through the compiler: its IR after every pass, how long each took, the generated text.

python -m tilelang.tools.lower_trace --target "cuda -arch=sm_90a" [--diff] [--output_file trace.txt] kernel.py
"""

from __future__ import annotations

import sys
from typing import Any

from tilelang import target as targets
from tilelang.errors import InvalidArgument
from tilelang.options import make_options
from tilelang.tools.script import Script


def lower_trace(func: Any, target: Any = None, diffs: bool = False, **options: Any) -> str:
    """The IR of a `T.prim_func` after every pass for a target, or with `diffs` what each pass changed; then the text.

    Needs no device. `options` are those of `tilelang.compile`.
    """
    chosen = targets.resolve(target)
    entry = targets.compiler_for(chosen.kind)
    show = None if entry is None else getattr(entry.load(), "lowering", None)
    if show is None:
        raise InvalidArgument(
            f"no compiler here tells how it lowers for {chosen}",
            expected="a target whose compiler is installed",
            repair="python -m tilelang doctor",
        )
    return str(show(func, target=chosen, options=make_options(**options), diffs=diffs))


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if the script compiled a kernel."""
    script = Script(__doc__ or "", ("--diff", "what each pass changes, in place of the whole IR"))
    return script.run(arguments, lambda kernel, chosen: lower_trace(kernel.func, kernel.target, chosen.diff))


if __name__ == "__main__":
    sys.exit(main())
