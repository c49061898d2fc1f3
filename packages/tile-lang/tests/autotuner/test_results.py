"""The file of results: what it holds, who may write it, what makes it useless."""

import json
import multiprocessing
from pathlib import Path

import pytest

from tilelang.autotuner import merge, results
from tilelang.autotuner.__main__ import main
from tilelang.errors import BadTuningFile

CONFIG = {"block_M": 128, "threads": 256}


def record(ms, **config):
    chosen = config or CONFIG
    slow = {"config": {"block_M": 64, "threads": 128}, "ms": 2 * ms}
    return {"config": chosen, "ms": ms, "candidates": [{"config": chosen, "ms": ms}, slow]}


def test_a_file_reads_back_and_has_a_candidate_on_each_line(tmp_path):
    path = tmp_path / "results.json"
    written = {"matmul": {"NVIDIA H200, sm_90a": {"M=1..2": record(0.5)}}}
    results.add(path, written)
    assert results.read(path) == written
    assert json.loads(path.read_text()) == {"format": 1, "results": written}
    assert '      {"config": {"block_M": 64, "threads": 128}, "ms": 1.0}' in path.read_text().splitlines()


def test_results_stand_beside_those_of_others(tmp_path):
    path = tmp_path / "results.json"
    results.add(path, {"b": {"H200, sm_90a": {"x": record(1.0)}}})
    results.add(path, {"a": {"H200, sm_90a": {"x": record(2.0)}}, "b": {"H200, sm_90a": {"x": record(3.0)}}})
    found = results.read(path)
    assert list(found) == ["a", "b"]
    assert found["b"]["H200, sm_90a"]["x"]["ms"] == 3.0


def _add(path: Path, number: int) -> None:
    for turn in range(5):
        results.add(path, {f"kernel{number}": {"device": {f"class{turn}": record(1.0)}}})


def test_processes_that_write_at_once_keep_each_other_s_results(tmp_path):
    path = tmp_path / "results.json"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add, args=(path, n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = results.read(path)
    assert {k: len(d["device"]) for k, d in found.items()} == {f"kernel{n}": 5 for n in range(3)}


def test_lookup_wants_the_device_and_takes_the_architecture_where_there_is_none():
    known = {"matmul": {"NVIDIA H200, sm_90a": {"x": record(1.0)}}}
    assert results.find(known, "matmul", "NVIDIA H200, sm_90a", "sm_90a", "x")["ms"] == 1.0
    assert results.find(known, "matmul", "NVIDIA H100, sm_90a", "sm_90a", "x") is None
    assert results.find(known, "matmul", None, "sm_90a", "x")["ms"] == 1.0
    assert results.find(known, "matmul", None, "sm_80", "x") is None
    assert results.find(known, "matmul", None, "sm_90a", "y") is None
    assert results.find(known, "other", None, "sm_90a", "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        '{"format": 2, "results": {}}',
        '{"format": 1, "results": []}',
        '{"format": 1, "results": {"a": []}}',
        '{"format": 1, "results": {"a": {"d": {"x": {"config": {}}}}}}',
        '{"format": 1, "results": {"a": {"d": {"x": {"config": [], "ms": 1}}}}}',
    ],
)
def test_a_file_that_says_something_else(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(BadTuningFile, match=r"results.json cannot be used"):
        results.read(path)


def test_merge_takes_the_later_result_and_show_prints_it(tmp_path, capsys, folder):
    for name, ms in (("first", 1.0), ("second", 0.5)):
        results.add(tmp_path / name, {"matmul": {"NVIDIA H200, sm_90a": {"M=1..2": record(ms)}}})
    assert merge([tmp_path / "first", tmp_path / "second"]) == folder / "autotuner" / "results.json"
    assert main(["show"]) == 0
    shown = capsys.readouterr().out
    assert "matmul on NVIDIA H200, sm_90a" in shown
    assert "0.5 ms  block_M=128, threads=256" in shown
    assert "of 2 configurations, 0 pruned, 0 failed" in shown
    assert main(["merge", str(tmp_path / "absent")]) == 1
    assert "there is no such file" in capsys.readouterr().err


def test_candidates_of_a_record_fastest_first():
    kept = record(1.0)
    kept["candidates"] = [
        {"config": {"n": 1}, "ms": 3.0},
        {"config": {"n": 2}, "pruned": "registers"},
        {"config": {"n": 3}, "ms": 2.0},
        {"config": CONFIG, "ms": 1.0},
    ]
    assert results.sorted_candidates(kept) == [CONFIG, {"n": 3}, {"n": 1}]
