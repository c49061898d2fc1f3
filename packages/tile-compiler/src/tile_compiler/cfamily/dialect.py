"""What differs between CUDA and HIP in the text around a kernel; the rest is the device header's matter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """`header` is the one file that a source includes. `bounds_blocks`: __launch_bounds__ counts blocks (else waves).

    `fast_math`: float32 functions and quotients are the header's approximations.
    """

    name: str
    header: str
    warp_size: int
    bounds_blocks: bool
    fast_math: bool = False

    def launch_bounds(self, threads: int, min_blocks: int | None) -> str:
        """A promise to the compiler: threads of a block, and the least number of blocks on one multiprocessor.

        HIP's second number counts waves on one SIMD of the four that a compute unit has
        (https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html, launch bounds).
        """
        if not min_blocks:
            return f"__launch_bounds__({threads})"
        waves = -(-min_blocks * -(-threads // self.warp_size) // 4)
        return f"__launch_bounds__({threads}, {min_blocks if self.bounds_blocks else waves})"


CUDA = Dialect(name="cuda", header="tl_cuda.cuh", warp_size=32, bounds_blocks=True)
HIP = Dialect(name="hip", header="tl_hip.h", warp_size=64, bounds_blocks=False)
