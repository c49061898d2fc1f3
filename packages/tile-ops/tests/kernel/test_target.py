"""What a call's kernels are for."""

from __future__ import annotations

import pytest
import torch

from tile_ops.kernel import Target, target, target_of


@pytest.mark.parametrize(
    ("text", "size"), [("32K\n", 32), ("48K\n", 48), ("64K\n", 48), ("16K\n", 32), ("1M\n", 32), (None, 32)]
)
def test_the_first_cache_is_the_system_s(monkeypatch, tmp_path, text, size):
    """As far as kernels differ by it."""
    if text is not None:
        (tmp_path / "size").write_text(text)
    monkeypatch.setattr(target, "_FIRST_CACHE", tmp_path / "size")
    target._target.cache_clear()
    try:
        assert target_of(torch.empty(1)).first_cache == size << 10
    finally:
        target._target.cache_clear()


def test_a_target_is_no_other_by_its_first_cache():
    """Kernels, and what is kept of them, are for its level."""
    assert Target("cpu", "x86-64-v4", first_cache=1) == Target("cpu", "x86-64-v4")
