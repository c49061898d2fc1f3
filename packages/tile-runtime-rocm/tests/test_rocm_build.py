"""HIP text to a code object: the compilers that are here, what the object says of its kernels, errors."""

from __future__ import annotations

import io
import struct
from typing import Any

import msgpack
import pytest
from elftools.elf import elffile

from tile_runtime_rocm import compilers, messagepack, metadata
from tile_runtime_rocm.build import BuildError, CodeObject, build
from tile_runtime_rocm.plugin import DEVICE

PRELUDE = """#define __global__ __attribute__((global))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
"""
SCALE = """#include "prelude.h"
extern "C" __global__ void __launch_bounds__(64) scale(float* x, float factor) {
  // T.Parallel (line 3)
  x[__builtin_amdgcn_workitem_id_x()] *= factor;
}
"""
SPILLING = """#include "prelude.h"
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1024, 1024))) void heavy(float* x) {
  __attribute__((shared)) static float lds[512];
  float held[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) held[i] = x[i * 1024 + __builtin_amdgcn_workitem_id_x()];
  lds[(int)held[7] & 511] = held[3];
  __builtin_amdgcn_s_barrier();
  for (int k = 0; k < (int)held[0]; ++k)
#pragma unroll
  for (int i = 0; i < 200; ++i) held[i] = held[i] * held[(i + 77) % 200] + held[(i * 7 + 1) % 200];
#pragma unroll
  for (int i = 0; i < 200; ++i) x[i * 1024 + __builtin_amdgcn_workitem_id_x()] = held[i] + lds[i];
}
"""
HEADERS = {"prelude.h": PRELUDE}


@pytest.fixture(scope="module")
def object_of_two_kernels() -> CodeObject:
    return build(SCALE + SPILLING.split("\n", 1)[1], arch="gfx942", headers=HEADERS)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("compiler", ["", "ziglang"])
def test_a_kernel_is_built_without_a_gpu(arch: str, compiler: str) -> None:
    made = DEVICE.build(SCALE, arch=arch, headers=HEADERS, compiler=compiler)
    assert made.data[:4] == b"\x7fELF"
    assert made.arch == arch
    used = made.resources["scale"]
    assert 0 < used["registers"] <= 16
    assert used["spills"] == used["scratch"] == used["shared"] == used["accumulators"] == 0


def test_spills_and_lds_are_found(object_of_two_kernels: CodeObject) -> None:
    used = object_of_two_kernels.resources
    assert used.keys() == {"scale", "heavy"}
    assert used["heavy"]["spills"] > 0
    assert used["heavy"]["scratch"] > 0
    assert used["heavy"]["shared"] == 2048


def test_the_figures_agree_with_other_readers(object_of_two_kernels: CodeObject) -> None:
    """pyelftools finds the note and msgpack reads it; both are independent of ours."""
    elf = elffile.ELFFile(io.BytesIO(object_of_two_kernels.data))
    notes = [n for s in elf.iter_segments("PT_NOTE") for n in s.iter_notes() if n["n_name"] == "AMDGPU"]
    (note,) = notes
    content = note["n_descdata"]
    assert (
        metadata.kernels(object_of_two_kernels.data) == msgpack.unpackb(content, strict_map_key=False)["amdhsa.kernels"]
    )


VALUES: list[Any] = [
    None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, -1, -32, -33, -128, -129, -32769, -(2**31),
    -(2**40), 1.5, "", "x" * 31, "x" * 32, "é" * 200, "y" * 70000, b"\0\1", b"z" * 300, [], list(range(15)), list(range(16)),
    list(range(70000)), {}, {str(i): i for i in range(15)}, {str(i): [i] for i in range(20)}, {"a": {"b": [1, {"c": None}]}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(v).__name__}{n}" for n, v in enumerate(VALUES)])
def test_messagepack_agrees_with_the_package(value: Any) -> None:
    assert messagepack.unpack(msgpack.packb(value)) == value
    assert messagepack.unpack(msgpack.packb(value, use_single_float=True)) == value


def test_damaged_metadata_is_named(object_of_two_kernels: CodeObject) -> None:
    data = object_of_two_kernels.data
    for cut in (b"", b"no elf", data[:20], data[:100], data.replace(b"AMDGPU\0", b"OTHERS\0")):
        with pytest.raises(ValueError, match=r"ELF|cut short|no metadata"):
            metadata.resources(cut)
    for packed in (b"\x82\xa1x", b"\xd9\x05ab", b"\xc7\x01\x01\x01", b"", struct.pack(">BI", 0xDD, 9)):
        with pytest.raises(ValueError, match="no msgpack"):
            messagepack.unpack(packed)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_shows_the_line_and_the_users_statement() -> None:
    with pytest.raises(BuildError) as caught:
        build(SCALE.replace("*= factor", "*= faktor"), arch="gfx942", headers=HEADERS)
    text = str(caught.value)
    assert "refused the kernel: use of undeclared identifier 'faktor'" in text
    assert "--> kernel.hip:4: x[__builtin_amdgcn_workitem_id_x()] *= faktor;" in text
    assert "in: T.Parallel (line 3)" in text


def test_an_error_in_a_header_names_the_header() -> None:
    with pytest.raises(BuildError, match=r"expected(.|\n)*--> prelude.h:3"):
        build(SCALE, arch="gfx942", headers={"prelude.h": PRELUDE + "int ;;) x\n"})


def test_an_instruction_of_another_architecture_is_refused() -> None:
    body = "x[0] = __builtin_amdgcn_cvt_f32_fp8(1, 0);"
    text = SCALE.replace("x[__builtin_amdgcn_workitem_id_x()] *= factor;", body)
    build(text, arch="gfx942", headers=HEADERS)
    with pytest.raises(BuildError, match="needs target feature fp8-conversion-insts"):
        build(text, arch="gfx90a", headers=HEADERS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"arch": "sm_90"}, "'sm_90' is no AMD architecture"),
        ({"arch": "gfx942", "compiler": "nvcc"}, "no compiler 'nvcc' for HIP"),
    ],
)
def test_wrong_names(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(BuildError, match=said):
        build(SCALE, headers=HEADERS, **arguments)


def test_without_a_compiler_the_three_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "find", lambda name="": None)
    with pytest.raises(BuildError) as caught:
        build(SCALE, arch="gfx942", headers=HEADERS)
    for word in ("hipcc", "clang 17 or newer", "ziglang"):
        assert word in str(caught.value)


def test_order_of_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """hipcc before clang before ziglang; a clang that is too old, or has no AMD target, is passed over."""

    def program(name: str, version: str, targets: str = "amdgcn") -> None:
        path = tmp_path / name
        path.write_text(
            f'#!/bin/sh\ncase "$1" in --version) echo "clang version {version}";; *) echo "{targets}";; esac\n'
        )
        path.chmod(0o755)

    def found() -> tuple[str, str]:
        compilers.find.cache_clear()
        chosen = compilers.find()
        assert chosen is not None
        return chosen.name, chosen.program[0].rpartition("/")[2]

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "absent"))
    program("clang++-30", "30.1.0", "x86_64")
    program("clang++-29", "15.0.7")
    assert found()[0] in ("ziglang", "clang")
    program("clang++-28", "28.1.0")
    assert found() == ("clang", "clang++-28")
    program("hipcc", "19.0.0git")
    assert found() == ("hipcc", "hipcc")
    compilers.find.cache_clear()


def test_commands_of_one_and_of_three_steps() -> None:
    one = compilers.Compiler("clang", ("clang++-19",), "").commands("gfx90a", ["-O1"])
    assert [c[-3:] for c in one] == [["-o", "kernel.hsaco", "kernel.hip"]]
    three = compilers.Compiler("ziglang", ("zig", "clang"), "").commands("gfx90a", ["-O1"])
    assert [c[1] for c in three] == ["clang", "clang", "ld.lld"]
    assert all("-O1" in c and "--offload-arch=gfx90a" in c for c in (one[0], three[0]))
