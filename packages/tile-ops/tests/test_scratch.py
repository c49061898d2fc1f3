"""Memory that a thread's calls use again."""

from __future__ import annotations

import tile_ops.scratch as memory


def test_it_grows_and_is_kept_up_to_its_limit(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 4000)
    monkeypatch.setattr(memory, "_memory", memory._Memory())
    first = memory.scratch(100)
    assert memory.scratch(50) is first
    second = memory.scratch(200)
    assert second.numel() == 200
    assert memory.scratch(5000).numel() == 5000
    assert memory.scratch(200) is second
