"""The listings of the documents run: cut out of the text, mended by listing_corrections.py, compared with references."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from checking import TOLERANCES, relative_error
from listing_corrections import CORRECTIONS, FREE_NAMES, S4_GLUED, S4_INDENTATION, SMALLER
from mla_decode import mla_reference

import tilelang

LISTINGS = ["S0", "S1", "S3.B1", "S3.B2", "S3.B3", "S4"]
IMPORTS = "import tilelang\nimport tilelang.language as T\n"


# -- cutting --------------------------------------------------------------------------------------------------


def document(seeds: Path, name: str) -> str:
    """The text of a document, by its number."""
    (file,) = seeds.glob(f"{int(name[1]):03}_*.txt")
    return file.read_text()


def fenced(text: str) -> list[str]:
    """The Python blocks of a page in Markdown."""
    return re.findall(r"^``` ?python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def cut_steps(text: str) -> str:
    """S0: steps 2 to 5; the bodies of steps 3 and 4 go where step 2 leaves a gap."""
    blocks = fenced(text)
    scaffold, grid, body, use = blocks[:4]
    gap = re.search(r"^ *# Kernel logic will go here\n *pass\n", scaffold, re.MULTILINE)
    assert gap is not None
    kernel = textwrap.indent(grid, " " * 8) + textwrap.indent(body, " " * 12)
    return scaffold[: gap.start()] + kernel + scaffold[gap.end() :] + use


def cut_article(text: str) -> str:
    """S1: the block with the GEMM, out of the JSON."""
    (block,) = [b for b in fenced(json.loads(text)["body_md"]) if "def matmul(" in b]
    return block


def cut_appendix(text: str, title: str) -> str:
    """S3: the block below a title, without line numbers; an indentation that is off by one column is put right."""
    block = re.search(rf"^{re.escape(title)} .*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if line.strip() and not line.strip().isdigit()]
    assert lines[0] == "@tilelang.jit"
    depths: list[int] = []
    result = [lines[0]]
    for line in lines[1:]:
        depth = len(line) - len(line.lstrip())
        depth = next((known for known in depths if abs(known - depth) == 1), depth)
        depths.append(depth)
        result.append(" " * (depth - depths[0]) + line.strip())
    return "\n".join(result) + "\n"


def cut_flat(text: str) -> str:
    """S4: from the import to `return main`, where the document's next sentence follows without a gap."""
    start = text.index("import tilelang\n")
    lines = text[start : text.index(S4_GLUED, start)].splitlines()
    assert len(lines) == len(S4_INDENTATION)
    return "".join("    " * depth + line + "\n" for depth, line in zip(S4_INDENTATION, lines, strict=True))


def cut(name: str, text: str) -> str:
    """The listing as the document has it, its lines in order."""
    if name.startswith("S3."):
        return cut_appendix(text, f"B.{name[-1]}")
    return {"S0": cut_steps, "S1": cut_article, "S4": cut_flat}[name](text)


def corrected(name: str, listing: str) -> str:
    """The listing as it runs: every correction finds what it corrects."""
    for correction in CORRECTIONS:
        if correction.listing == name:
            assert listing.count(correction.found) == correction.times, correction
            listing = listing.replace(correction.found, correction.replaced)
    return (IMPORTS + FREE_NAMES[name] if name in FREE_NAMES else "") + listing


# -- comparing ------------------------------------------------------------------------------------------------


def half(*shape: int) -> np.ndarray[Any, Any]:
    """A random float16 array."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def product(a: Any, b: Any) -> np.ndarray[Any, Any]:
    """A matrix product in float64, of arrays or tensors."""
    return np.asarray(a, np.float64) @ np.asarray(b, np.float64)


def compare_steps(listing: ModuleType) -> float:
    return relative_error(listing.C_tilelang, product(listing.A, listing.B))


def compare_article(listing: ModuleType) -> float:
    return relative_error(listing.c, np.maximum(product(listing.a, listing.b), 0))


def compare_matmul(listing: ModuleType) -> float:
    A, B, C = half(listing.M, listing.K), half(listing.K, listing.N), np.zeros((listing.M, listing.N), np.float16)
    listing.Matmul(A, B, C)
    return relative_error(C, product(A, B))


def compare_dequantized(listing: ModuleType) -> float:
    A, Ct = half(listing.M, listing.K), np.zeros((listing.N, listing.M), np.float16)
    B = np.random.default_rng(1).integers(-128, 128, listing.B_shape, np.int8)
    listing.matmul_fp16_fp4(A, B, Ct)
    decoded = np.stack([B & 15, (B >> 4) & 15], axis=-1).reshape(listing.N, listing.K)
    return relative_error(Ct, product(decoded, A.T))


def compare_mla(listing: ModuleType) -> float:
    batch, heads, kv_heads, seqlen = listing.batch, listing.heads, listing.kv_head_num, listing.seqlen_kv
    Q, Q_pe = half(batch, heads, listing.dim), half(batch, heads, listing.pe_dim)
    KV, K_pe = half(batch, seqlen, kv_heads, listing.dim), half(batch, seqlen, kv_heads, listing.pe_dim)
    Output = np.zeros_like(Q)
    listing.flash_attn(Q, Q_pe, KV, K_pe, Output)
    return relative_error(Output, mla_reference(Q, Q_pe, KV, K_pe))


def compare_flat(listing: ModuleType) -> float:
    assert listing.Profiler is tilelang.Profiler
    A, B = half(100, 70), half(70, 90)
    kernel = tilelang.compile(listing.matmul(100, 90, 70, 32, 32, 32), out_idx=[2], target="cuda")
    return relative_error(kernel(A, B), product(A, B))


COMPARE: dict[str, Callable[[ModuleType], float]] = {
    "S0": compare_steps,
    "S1": compare_article,
    "S3.B1": compare_matmul,
    "S3.B2": compare_dequantized,
    "S3.B3": compare_mla,
    "S4": compare_flat,
}


def run(name: str, text: str, folder: Path) -> ModuleType:
    """Import a listing from a file, as its reader would: kernels need their source."""
    file = folder / f"listing_{name.replace('.', '_')}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", LISTINGS)
def test_listing_runs(name: str, seeds: Path, execution: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ("S0", "S1"):
        pytest.importorskip("torch")
    monkeypatch.setenv("TILELANG_TARGET_OVERRIDE", "cpu")
    monkeypatch.setenv("TILELANG_EXECUTION", execution)
    text = corrected(name, cut(name, document(seeds, name)))
    if execution == "interpret" and name in SMALLER:
        assert SMALLER[name][0] in text
        text = text.replace(*SMALLER[name])
    assert COMPARE[name](run(name, text, tmp_path)) <= TOLERANCES["float16"]
