"""The probe against a library that answers as the CUDA driver does, and against this machine as it is."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from tile_runtime.device import Device
from tile_runtime.errors import DeviceUnavailable
from tile_runtime_cuda import driver, plugin

H200 = {"name": b"NVIDIA H200", "capability": (9, 0), "memory": 150_000_000_000}
T4 = {"name": b"Tesla T4", "capability": (7, 5), "memory": 15_000_000_000}


class FakeLibrary:
    """The functions that the probe calls, over a list of devices."""

    def __init__(self, devices: list[dict[str, Any]], init_status: int = 0) -> None:
        self.devices, self.init_status, self.calls = devices, init_status, list[str]()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            self.calls.append(name)
        return super().__getattribute__(name)

    def cuInit(self, flags: Any) -> int:
        return self.init_status

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13010
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, out: Any, ordinal: Any) -> int:
        out._obj.value = ordinal.value
        return 0

    def cuDeviceGetName(self, out: Any, size: Any, handle: Any) -> int:
        out.value = self.devices[handle.value]["name"]
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, handle: Any) -> int:
        out._obj.value = self.devices[handle.value]["memory"]
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: Any, handle: Any) -> int:
        device = self.devices[handle.value]
        out._obj.value = 132 + handle.value if attribute.value == 16 else device["capability"][attribute.value - 75]
        return 0

    def cuGetErrorString(self, status: Any, out: Any) -> int:
        out._obj.value = b"no CUDA-capable device is detected"
        return 0


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the given library (or None: no driver at all) the machine's."""

    def use(library: FakeLibrary | None) -> None:
        def open_library(name: str) -> FakeLibrary:
            if library is None:
                raise OSError(f"{name}: cannot open shared object file")
            return library

        monkeypatch.setattr(ctypes, "CDLL", open_library)

    return use


def test_devices_are_named_with_architecture_and_memory(pretend: Any) -> None:
    pretend(FakeLibrary([H200, T4]))
    assert plugin.DEVICE.describe() == {
        "driver": "13.1",
        "devices": [
            {"name": "NVIDIA H200", "arch": "sm_90a", "memory_bytes": 150_000_000_000},
            {"name": "Tesla T4", "arch": "sm_75", "memory_bytes": 15_000_000_000},
        ],
    }
    assert plugin.DEVICE.arch() == "sm_90a"


@pytest.mark.parametrize(("present", "reason"), [(True, ""), (False, ", but this process sees no CUDA device")])
def test_availability_leaves_the_driver_uninitialized(
    pretend: Any, monkeypatch: pytest.MonkeyPatch, present: bool, reason: str
) -> None:
    library = FakeLibrary([H200])
    pretend(library)
    monkeypatch.setattr(plugin, "device_present", lambda: present)
    assert plugin.DEVICE.is_available() == (present, f"the driver supports CUDA 13.1{reason}")
    assert library.calls == ["cuDriverGetVersion"]


def test_no_device_is_visible_where_the_user_hid_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.listdir", lambda folder: ["null", "nvidia0", "nvidiactl"])
    assert driver.device_present()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not driver.device_present()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("os.listdir", lambda folder: ["null", "nvidiactl"])
    assert driver.device_present() == (sys.platform != "linux")


def test_no_driver_is_an_answer(pretend: Any) -> None:
    pretend(None)
    assert plugin.DEVICE.is_available() == (False, "no CUDA driver: libcuda.so.1 cannot be opened")
    assert plugin.DEVICE.describe() == {"error": "no CUDA driver: libcuda.so.1 cannot be opened"}
    with pytest.raises(DeviceUnavailable, match="no CUDA driver"):
        plugin.DEVICE.arch()


def test_a_refusal_carries_the_drivers_words(pretend: Any) -> None:
    pretend(FakeLibrary([], init_status=100))
    words = "the CUDA driver refused cuInit: no CUDA-capable device is detected (100)"
    assert plugin.DEVICE.describe() == {"driver": "13.1", "error": words}


def test_a_driver_without_devices_is_an_error_only_where_one_is_needed(pretend: Any) -> None:
    pretend(FakeLibrary([]))
    assert plugin.DEVICE.describe()["devices"] == []
    with pytest.raises(DeviceUnavailable, match="offers no device"):
        plugin.DEVICE.arch()
    with pytest.raises(DeviceUnavailable, match="offers no device"):
        plugin.CudaDevice().profile_hooks()


def test_plugin_fulfils_the_contract_on_this_machine() -> None:
    assert isinstance(plugin.DEVICE, Device)
    assert plugin.DEVICE.is_available().reason
    assert {"driver", "error"} & plugin.DEVICE.describe().keys()


@pytest.mark.parametrize(("capability", "arch"), [((7, 5), "sm_75"), ((8, 9), "sm_89"), ((10, 0), "sm_100a")])
def test_architecture_names(capability: tuple[int, int], arch: str) -> None:
    assert driver.arch_name(*capability) == arch


def test_multiprocessors(pretend: Any) -> None:
    pretend(FakeLibrary([H200, T4]))
    assert [plugin.DEVICE.multiprocessors(n) for n in range(2)] == [132, 133]
    pretend(None)
    with pytest.raises(DeviceUnavailable, match="libcuda"):
        plugin.DEVICE.multiprocessors()
