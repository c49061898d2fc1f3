"""A roofline of a traced kernel: what it multiplies and copies, against the rates of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelang.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilelang.carver.arch import TileDevice


@dataclass(frozen=True)
class Analysis:
    """`total_flops` of T.gemm; `total_global_bytes` that blocks read and write, caches or not.

    `estimated_time` in seconds is the longer of what the matrix units need for the former and memory for the latter;
    `bound` says which. `expected_tflops` and `expected_bandwidth_GBps` are the rates at that time.
    """

    total_flops: int
    total_global_bytes: int
    estimated_time: float
    expected_tflops: float
    expected_bandwidth_GBps: float
    bound: str


class Analyzer:
    """`Analyzer.analysis(func, CUDA("cuda -arch=sm_90a"))`."""

    @staticmethod
    def analysis(func: Any, device: TileDevice, sizes: Mapping[str, int] | None = None) -> Analysis:
        """Read off a `T.prim_func`; nothing is compiled. `sizes` gives dynamic dimensions their values by name.

        Counted is one block in the middle of the grid, times the blocks; conditions count as taken. InvalidArgument
        for a grid of unknown size, and for products that the device's matrix units do not have.
        """
        from tilelang.ir.tile_work import tile_work

        work, machine = tile_work(func, sizes), device.machine
        seconds, flops, moved = 0.0, 0, 0
        for launch in work.launches:
            if launch.blocks is None:
                raise InvalidArgument(
                    "Analyzer.analysis does not know how many blocks there are",
                    found="a grid of dynamic extents",
                    expected="values for all dynamic dimensions",
                    repair='Analyzer.analysis(func, device, sizes={"n": 4096})',
                )
            for product in launch.products:
                if product.dtype not in machine.tensor:
                    raise InvalidArgument(
                        f"the {machine.name} has no matrix unit for {product.dtype}",
                        expected=", ".join(machine.tensor),
                        repair="analyze the kernel for another device",
                    )
                flops += launch.blocks * product.flops
                seconds += launch.blocks * product.flops / machine.tensor[product.dtype]
            moved += launch.blocks * (launch.read_bytes + launch.written_bytes)
        memory = moved / machine.bandwidth
        longest = max(seconds, memory)
        rate = 1 / longest if longest else 0.0
        bound = "compute" if seconds > memory else "memory"
        return Analysis(flops, moved, longest, flops * rate / 1e12, moved * rate / 1e9, bound)
