"""Names of the tile IR in TVM's registry."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tilelang.ir import tile_ir


def test_threads_that_name_operators_at_once_register_each_once():
    """As those do whose first calls trace kernels at the same moment: TVM takes a name one time."""
    threads, before = 8, sys.getswitchinterval()
    start = threading.Barrier(threads)

    def name_all(_: int) -> list[str]:
        start.wait()
        return [str(tile_ir.operator(f"tl.test_at_once_{number}", pure=True).name) for number in range(200)]

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(name_all, range(threads)))
    finally:
        sys.setswitchinterval(before)
    assert found == [[f"tl.test_at_once_{number}" for number in range(200)]] * threads
