from __future__ import annotations

from pathlib import Path

import pytest

from tile_runtime_cpu import cpuid

KERNEL_NAMES = {
    "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm", "sahf": "lahf_lm", "sse3": "pni",
    "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni",
    "amx-bf16": "amx_bf16", "amx-tile": "amx_tile", "amx-int8": "amx_int8",
}  # fmt: skip


def test_features_are_those_that_the_kernel_sees() -> None:
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    expected = {name for name in cpuid._BITS if KERNEL_NAMES.get(name, name) in flags}
    assert cpuid.features() - {"avxvnni"} == expected - {"avxvnni"}  # older kernels do not list avxvnni


def test_tile_registers_count_where_the_kernel_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = frozenset(cpuid._BITS)
    monkeypatch.setattr(cpuid, "_decode", lambda leaf, state: everything)
    for answer in (True, False):
        monkeypatch.setattr(cpuid, "_may_use_tiles", lambda given=answer: given)
        cpuid.features.cache_clear()
        tiles = {"amx-tile", "amx-bf16", "amx-int8"}
        assert cpuid.features() == (everything if answer else everything - tiles)
        assert cpuid.level() == "x86-64-v4+bf16+vnni" + ("+amx" if answer else "")
        assert set(cpuid.missing("x86-64-v4+bf16+vnni+amx")) == (set() if answer else tiles)
    cpuid.features.cache_clear()


def test_level_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpuid.level() in cpuid.LEVELS
    assert cpuid.missing(cpuid.level()) == []
    assert cpuid.missing("") == []
    assert cpuid.missing("znver4") == [f"level znver4 (known: {', '.join(cpuid.LEVELS)})"]
    monkeypatch.setattr(cpuid, "features", lambda: frozenset(cpuid.LEVELS["x86-64-v3"]))
    assert cpuid.level() == "x86-64-v3"
    assert cpuid.missing("x86-64-v4", ("amx-tile",)) == [
        "amx-tile",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512f",
        "avx512vl",
    ]
    monkeypatch.setattr(cpuid, "features", lambda: frozenset({"avx512f"}))
    assert cpuid.level() == "x86-64"


def test_registers_that_the_system_does_not_save_do_not_count() -> None:
    def leaf(number: int, sub: int) -> tuple[int, ...]:
        return (7, 0, 0, 0) if number == 0 else (0x80000001, 0, 0, 0) if number == 0x80000000 else (2**32 - 1,) * 4

    everything = cpuid._decode(leaf, lambda register: 2**64 - 1)
    assert everything == set(cpuid._BITS)
    only_sse = cpuid._decode(leaf, lambda register: 0b10)
    assert "popcnt" in only_sse
    assert "avx2" not in only_sse
    only_avx = cpuid._decode(leaf, lambda register: 0b110)
    assert "avx2" in only_avx
    assert not {n for n in only_avx if n.startswith(("avx512", "amx"))}
