"""Finds vendor runtimes by their entry points, when asked and never at import.

A plugin that fails to load is remembered with its reason and reported by `doctor`; the others work on.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from .device import Device
from .entry_points import entry_points
from .errors import DeviceNotFound

GROUP = "tile_runtime.devices"
_LOG = logging.getLogger("tile_runtime.registry")
_lock = threading.Lock()
_loaded: dict[str, Device] = {}
_failed: dict[str, str] = {}


def names() -> list[str]:
    """Names of the devices that installed packages announce, whether they load or not."""
    return sorted({entry.name for entry in entry_points(GROUP)} | set(_loaded))


def device(name: str) -> Device:
    """The device of that name. Raises DeviceNotFound with the reason if no plugin offers it or its plugin fails."""
    with _lock:
        found = _loaded.get(name)
        if found is not None:
            return found
        if name not in _failed:
            _load(name)
        if name in _loaded:
            return _loaded[name]
        reason = _failed.pop(name)  # asked again after a repair, it is tried again
    raise DeviceNotFound(reason)


def register(plugin: Device) -> None:
    """Adds a device that no entry point announces (a test's, or one in the process that built it)."""
    with _lock:
        _loaded[plugin.name] = plugin


def doctor() -> dict[str, dict[str, Any]]:
    """For each announced device: `ok`, `reason`, and what the vendor describes. Never raises."""
    report: dict[str, dict[str, Any]] = {}
    for name in names():
        try:
            plugin = device(name)
            available = plugin.is_available()
            report[name] = {"ok": available.ok, "reason": available.reason, **plugin.describe()}
        except Exception as error:
            report[name] = {"ok": False, "reason": str(error)}
    return report


def _load(name: str) -> None:
    candidates = [entry for entry in entry_points(GROUP) if entry.name == name]
    if not candidates:
        known = ", ".join(sorted({e.name for e in entry_points(GROUP)} | set(_loaded))) or "none"
        _failed[name] = f"no installed package offers the device {name!r} (found: {known}); install tile-runtime-{name}"
        return
    try:
        plugin = candidates[0].load()
        if not isinstance(plugin, Device):
            raise TypeError(f"{candidates[0].value} is not a tile_runtime.device.Device")
        _loaded[name] = plugin
    except Exception as error:
        _failed[name] = (
            f"the plugin {candidates[0].value} of device {name!r} failed to load: {type(error).__name__}: {error}"
        )
        _LOG.warning("%s", _failed[name])
