from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tile_runtime import registry
from tile_runtime.device import Availability, Device
from tile_runtime.errors import DeviceNotFound


class Fake:
    name = "fake"

    def is_available(self) -> Availability:
        return Availability(True, "a test")

    def arch(self) -> str:
        return "none"

    def load(self, artifact: Any) -> Any: ...

    def profile_hooks(self) -> Any: ...

    def describe(self) -> dict[str, Any]:
        return {"arch": self.arch()}


FAKE = Fake()
NOT_A_DEVICE = object()


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    sys.modules.setdefault("tile_runtime_fake_plugin", sys.modules[__name__])
    points = [
        EntryPoint("fake", "tile_runtime_fake_plugin:FAKE", registry.GROUP),
        EntryPoint("broken", "tile_runtime_fake_plugin:MISSING", registry.GROUP),
        EntryPoint("wrong", "tile_runtime_fake_plugin:NOT_A_DEVICE", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.setattr(registry, "_failed", {})


def test_a_device_is_found_by_its_entry_point() -> None:
    assert registry.device("fake") is FAKE
    assert isinstance(FAKE, Device)
    assert registry.names() == ["broken", "fake", "wrong"]


def test_an_unknown_device_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(DeviceNotFound, match=r"TLR004.*'tpu' \(found: broken, fake, wrong\); install tile-runtime-tpu"):
        registry.device("tpu")


def test_a_broken_plugin_says_why_and_harms_no_other() -> None:
    with pytest.raises(
        DeviceNotFound, match=r"plugin tile_runtime_fake_plugin:MISSING .* failed to load: AttributeError"
    ):
        registry.device("broken")
    with pytest.raises(DeviceNotFound, match=r"is not a tile_runtime\.device\.Device"):
        registry.device("wrong")
    assert registry.device("fake") is FAKE


def test_doctor_reports_all_of_them() -> None:
    report = registry.doctor()
    assert report["fake"] == {"ok": True, "reason": "a test", "arch": "none"}
    assert not report["broken"]["ok"]
    assert "MISSING" in report["broken"]["reason"]


def test_a_device_can_be_registered_without_entry_point() -> None:
    other = Fake()
    other.name = "other"
    registry.register(other)
    assert registry.device("other") is other
    assert "other" in registry.names()
