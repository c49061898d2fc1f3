"""What the driver knows of the device."""

from __future__ import annotations

from typing import Any


def get_num_sms(device_id: int = 0) -> int:
    """The multiprocessors of a CUDA device: how many blocks a kernel whose blocks stay should have.

    Without a device, those of the chip that is compiled for then, so that such a kernel can be compiled and emulated.
    """
    from tile_runtime import registry

    device: Any = registry.device("cuda") if "cuda" in registry.names() else None
    if device is not None and device.is_available():
        return int(device.multiprocessors(device_id))
    from tilelang.carver.arch import CUDA

    return CUDA().compute_max_core
