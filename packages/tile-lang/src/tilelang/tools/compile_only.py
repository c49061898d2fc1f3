"""The generated text of the kernels that a script compiles; no device is needed.

python -m tilelang.tools.compile_only --target "cuda -arch=sm_90a" --output_file out.cu kernel.py
"""

from __future__ import annotations

import sys

from tilelang.tools.script import Script


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 if the script compiled a kernel."""
    return Script(__doc__ or "").run(arguments, lambda kernel, chosen: kernel.artifact.source or "")


if __name__ == "__main__":
    sys.exit(main())
