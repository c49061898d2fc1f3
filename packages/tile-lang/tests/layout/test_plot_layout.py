"""Pictures of layouts: what each cell says, which files are written, what absent matplotlib says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilelang.layout import Fragment, Layout, make_padded_layout, make_swizzled_layout
from tilelang.tools import plot_layout
from tilelang.tools.plot_layout import _grid, _picture


def small_fragment() -> Fragment:
    return Fragment((2, 4), lambda i, j, rep: (j // 2 + 2 * rep, i * 2 + j % 2), replicate=2)


def test_cells_of_a_fragment_name_threads_and_register() -> None:
    picture = _picture(small_fragment(), "input", None)
    assert picture.labels[1] == ["T0/2\nR2", "T0/2\nR3", "T1/3\nR2", "T1/3\nR3"]
    assert picture.colours.tolist() == [[0, 0, 1, 1]] * 2
    assert "4 threads, 4 registers each, held 2 x" in picture.title
    by_thread = _picture(small_fragment(), "output", None)
    assert by_thread.labels[3] == ["0,2", "0,3", "1,2", "1,3"]
    assert by_thread.rows == "thread"


def test_cells_of_a_layout_show_offsets_and_a_swizzles_chunks() -> None:
    picture = _picture(make_swizzled_layout((8, 64), "float16"), "input", None)
    assert picture.labels[1][:9] == ["72", "73", "74", "75", "76", "77", "78", "79", "64"]
    assert picture.colours[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_padding_stays_blank_in_the_output_view() -> None:
    picture = _picture(make_padded_layout((2, 3), pad=1), "output", (1, 7))
    assert picture.labels == [["0,0", "0,1", "0,2", "", "1,0", "1,1", "1,2"]]
    assert picture.colours[0, 3] == -1


def test_grid_keeps_the_last_dimension_across_and_wraps_long_rows() -> None:
    assert _grid((2, 3, 5), None) == (6, 5)
    assert _grid((9,), None) == (1, 9)
    assert _grid((108,), None) == (4, 32)
    assert len(_picture(Layout((108,), lambda i: i), "input", None).labels) == 4


@pytest.mark.parametrize(
    ("formats", "kinds"),
    [("png", ["png"]), ("svg|pdf", ["svg", "pdf"]), ("all", ["png", "pdf", "svg"]), (["pdf"], ["pdf"])],
)
def test_files_are_written_and_returned(tmp_path: Path, formats: Any, kinds: list[str]) -> None:
    pytest.importorskip("matplotlib")
    paths = plot_layout(small_fragment(), tmp_path / "new", name="it", formats=formats)
    assert paths == [tmp_path / "new" / f"it.{kind}" for kind in kinds]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_large_tiles_are_drawn_without_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = plot_layout(Layout((128, 128), lambda i, j: i * 128 + j), tmp_path, formats="svg")
    assert path.stat().st_size < 1_000_000


def test_errors_name_the_fault_and_a_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout((4,), lambda i: i)
    with pytest.raises(ValueError, match=r"cannot write the format 'gif'\. Use \"png\""):
        plot_layout(layout, tmp_path, formats="gif")
    with pytest.raises(ValueError, match=r"view='side'\. Use \"input\""):
        plot_layout(layout, tmp_path, view="side")
    with pytest.raises(ValueError, match=r"grid_shape=\(3, 3\) for 4 cells"):
        plot_layout(layout, tmp_path, grid_shape=(3, 3))
    with pytest.raises(TypeError, match="draws a Layout or a Fragment, but int was given"):
        plot_layout(3, tmp_path)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install tile-lang\[vis\]"):
        plot_layout(layout, tmp_path)


def test_importing_layouts_and_tools_loads_no_compiler_and_no_matplotlib() -> None:
    code = (
        "import sys, tilelang.layout, tilelang.tools; "
        "print([m for m in ('tvm', 'tvm_ffi', 'torch', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
