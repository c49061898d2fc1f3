"""The probe against a topology as the kernel writes it, and against this machine as it is."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from tile_runtime.device import Device
from tile_runtime.errors import DeviceUnavailable
from tile_runtime_rocm import driver, plugin

CPU = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\nwave_front_size 0\n"
MI300X = "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\nwave_front_size 64\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make nodes with these properties the machine's."""

    def has(*nodes: str) -> Path:
        for index, properties in enumerate(nodes):
            (tmp_path / str(index)).mkdir()
            (tmp_path / str(index) / "properties").write_text(properties)
        monkeypatch.setattr(driver, "TOPOLOGY", tmp_path)
        return tmp_path

    return has


def test_devices_are_named_with_architecture_and_wave(machine: Any) -> None:
    machine(CPU, MI300X, MI300X)
    assert plugin.DEVICE.describe()["devices"] == [
        {"node": 1, "arch": "gfx942", "wave": 64},
        {"node": 2, "arch": "gfx942", "wave": 64},
    ]
    assert plugin.DEVICE.arch() == "gfx942"


@pytest.mark.parametrize(
    ("version", "binding", "answer"),
    [
        (None, True, (False, "found gfx942, but the HIP runtime (libamdhip64) cannot be opened: install ROCm")),
        ("7.0.2", False, (False, "found gfx942 and HIP 7.0.2, but hip-python is not installed: " + plugin.INSTALL)),
        ("7.0.2", True, (True, "found gfx942, HIP 7.0.2")),
    ],
)
def test_what_is_missing_is_named(
    machine: Any, monkeypatch: pytest.MonkeyPatch, version: str | None, binding: bool, answer: tuple[bool, str]
) -> None:
    machine(MI300X)
    monkeypatch.setattr(driver, "runtime_version", lambda: version)
    monkeypatch.setattr(plugin, "find_spec", lambda name: object() if binding else None)
    assert plugin.DEVICE.is_available() == answer


def test_a_node_that_cannot_be_read_is_passed_over(machine: Any) -> None:
    topology = machine(CPU, MI300X)
    (topology / "2").mkdir()
    assert [found.node for found in driver.devices()] == [1]


def test_no_gpu_is_an_answer(machine: Any) -> None:
    machine(CPU)
    assert plugin.DEVICE.is_available() == (False, "the kernel driver (amdkfd) shows no AMD GPU")
    with pytest.raises(DeviceUnavailable, match="no AMD GPU"):
        plugin.DEVICE.arch()
    with pytest.raises(DeviceUnavailable, match="no AMD GPU"):
        plugin.DEVICE.profile_hooks()


def test_absent_kernel_driver_means_no_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TOPOLOGY", tmp_path / "absent")
    assert driver.devices() == []


@pytest.mark.parametrize(
    ("version", "arch"), [(90402, "gfx942"), (90010, "gfx90a"), (110001, "gfx1101"), (120000, "gfx1200")]
)
def test_architecture_names(version: int, arch: str) -> None:
    assert driver.arch_name(version) == arch


def test_runtime_version_is_split_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        status = 0

        def hipRuntimeGetVersion(self, out: Any) -> int:
            out._obj.value = 70051831
            return self.status

    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert driver.runtime_version() == "7.0.51831"
    library.status = 1
    assert driver.runtime_version() is None


def test_plugin_fulfils_the_contract_on_this_machine() -> None:
    assert isinstance(plugin.DEVICE, Device)
    assert plugin.DEVICE.is_available().reason
    assert plugin.DEVICE.describe().keys() == {"runtime", "devices"}
