"""`python -m tilelang`: doctor, and the kernel cache."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.__main__ import main


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(cache_folder):
    @T.prim_func
    def my_kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            T.clear(A)

    kernel = tilelang.compile(my_kernel, target="cpu")
    kernel(np.ones(8, np.float32))
    return kernel


def test_doctor_says_what_is_installed_and_what_works(capsys, cache_folder, monkeypatch):
    monkeypatch.setenv("TILELANG_NUM_THREADS", "2")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("tile-lang", "tile-compiler", "tile-runtime-cpu", "apache-tvm", "numpy"):
        assert f"\n  {name} " in out
    assert "cpu   compiles; runs" in out
    assert "cuda " in out
    assert "hip " in out
    assert "auto  means cpu" in out or "auto  means cuda" in out or "auto  means hip" in out
    assert "TILELANG_NUM_THREADS=2" in out
    assert str(cache_folder) in out
    assert out.endswith("all is well\n")


def test_doctor_says_how_to_get_what_is_missing(capsys, monkeypatch):
    import importlib.metadata

    version = importlib.metadata.version

    def without(name):
        if name in ("tile-ops", "torch"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.1.15" if name == "apache-tvm-ffi" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", without)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "pip install tile-ops" in out
    assert "pip install torch (optional" in out
    assert "pip install apache-tvm-ffi==" in out
    assert "something above needs repair" in out


def test_doctor_notices_another_package_of_the_same_name(capsys, monkeypatch):
    import importlib.metadata

    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.15" if name == "tilelang" else version(name))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "[TL128] another distribution with a package `tilelang`" in out
    assert "pip uninstall tilelang" in out


def test_cache_ls_lists_kernels(capsys, compiled, cache_folder):
    assert main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert "my_kernel" in out
    assert "kernels," in out
    assert str(cache_folder) in out


def test_cache_verify_removes_what_is_damaged(capsys, compiled, cache_folder):
    assert main(["cache", "verify"]) == 0
    assert "0 files were removed" in capsys.readouterr().out
    file = next(f for f in cache_folder.rglob("*.tile") if b"my_kernel" in f.read_bytes())
    file.write_bytes(file.read_bytes()[:50])
    assert main(["cache", "verify"]) == 0
    out = capsys.readouterr().out
    assert "removed" in out
    assert "1 files were removed" in out
    assert not file.exists()


def test_cache_clear_empties_it(capsys, compiled):
    assert main(["cache", "clear"]) == 0
    assert "files removed" in capsys.readouterr().out
    assert main(["cache", "ls"]) == 0
    assert "0 kernels, 0 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["cache"], ["cache", "shrink"], ["docter"]])
def test_wrong_command_shows_the_usage(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m tilelang" in capsys.readouterr().err


def test_runs_as_a_module(tmp_path):
    env = {**os.environ, "TILELANG_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tilelang", "cache", "ls"], env=env, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "0 kernels" in done.stdout
