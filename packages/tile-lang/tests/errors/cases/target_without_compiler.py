"""A target that this installation cannot compile for."""

from unittest.mock import patch

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


with patch("tilelang.kernel.entry_points", lambda group: []), patch("tilelang.target.compiler_for", lambda kind: None):
    tilelang.compile(kernel, target="hip -mcpu=gfx942")  # as where no compiler is installed


# --- what the user sees
# TargetUnavailable: [TL126] this installation cannot compile for hip -mcpu=gfx942
#   --> target_without_compiler.py:16   tilelang.compile(kernel, target="hip -mcpu=gfx942")  # as where no compiler is installed
#   found:    installed compilers: none
#   expected: a package that provides the target
#   try:      TILELANG_TARGET_OVERRIDE=cpu runs the program on the CPU, TILELANG_EXECUTION=interpret in numpy; `pip install tile-lang[cpu]` installs the CPU target
