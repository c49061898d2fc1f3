"""Processes that compile and measure: their answers, their deaths, their limits; and the progress that a user sees."""

import io
import os

import numpy as np
import pytest

from tilelang.autotuner import inputs, processes
from tilelang.autotuner.processes import Worker, run_all
from tilelang.autotuner.progress import Progress


def answers(role, tasks, **options):
    found = {}
    run_all(role, tasks, **{"workers": 2, "timeout": 60, "done": found.__setitem__, **options})
    return [found[i] for i in range(len(tasks))]


def test_an_exception_is_the_answer_of_its_task_alone():
    first, second = answers("measure", [{"artifact": "/nowhere.tile"}, {}], workers=1)
    assert first["error"].startswith("FileNotFoundError")
    assert second["error"] == "KeyError: 'artifact'"


def test_a_process_that_cannot_start_is_an_answer_with_its_last_words():
    (answer,) = answers("measure", [{}], arguments=["nothing=tilelang.nothing:X"])
    assert "the process died (exit status 1" in answer["error"]
    assert "No module named 'tilelang.nothing'" in answer["error"]


def test_a_process_that_was_killed_is_an_answer():
    worker = Worker("measure")
    os.kill(worker._process.pid, 9)
    answer = None
    while answer is None:
        answer = worker.read()
    worker.stop()
    assert answer["error"].startswith("the process died (signal 9")


def test_no_process_is_left_when_the_caller_fails(monkeypatch):
    started = []

    class Recorded(Worker):
        def __init__(self, *args):
            super().__init__(*args)
            started.append(self._process)

    def done(index, answer):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "Worker", Recorded)
    with pytest.raises(KeyboardInterrupt):
        run_all("measure", [{}] * 3, workers=2, timeout=60, done=done)
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.int8).reshape(3, 4)[:, ::2],
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
    ],
)
def test_tensors_come_back_from_files_with_their_strides(tmp_path, value):
    described = inputs.save([value, 3, 2.5], tmp_path, "x")
    (array, *numbers) = inputs.load(described, tmp_path)
    np.testing.assert_array_equal(array, value)
    assert array.dtype == value.dtype
    if value.size:
        assert array.strides == value.strides
    assert numbers == [3, 2.5]
    copy = inputs.copied(array)
    copy[...] = 0
    np.testing.assert_array_equal(array, value)


def test_tensors_of_torch_and_of_types_that_numpy_lacks(tmp_path):
    import ml_dtypes
    import torch

    value = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    (array,) = inputs.load(inputs.save([value], tmp_path, "x"), tmp_path)
    assert array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(array.astype(np.float32), value.float().numpy())


def test_poison_shows_what_a_kernel_leaves_out():
    import torch

    for value in (np.zeros(3, np.float16), torch.zeros(3)):
        inputs.poison(value)
        assert np.isnan(np.asarray(value)).all()
    number = np.zeros(3, np.int32)
    inputs.poison(number)
    assert (number == -1).all()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_rewrites_one_line():
    stream = Terminal()
    with Progress("measuring", 4, stream=stream) as bar:
        bar.step("block_M=64", "best 0.5 ms")
        bar.step("block_M=128")
    lines = [line.rstrip() for line in stream.getvalue().split("\r")]
    assert lines[1].startswith("measuring  [........................]   0/4")
    assert lines[2].startswith("measuring  [######..................]   1/4")
    assert lines[3].startswith("measuring  [############............]   2/4")
    assert lines[3].endswith("best 0.5 ms  block_M=128")
    assert stream.getvalue().count("\n") == 1


def test_progress_elsewhere_is_one_line_and_silence_is_silent():
    stream = io.StringIO()
    with Progress("compiling", 2, stream=stream) as bar:
        bar.step("a")
        bar.step("b")
    assert stream.getvalue().count("\n") == 1
    assert "2/2" in stream.getvalue()
    quiet = io.StringIO()
    with Progress("compiling", 2, shown=False, stream=quiet) as bar:
        bar.step("a")
    assert quiet.getvalue() == ""
