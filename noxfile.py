"""Every check of the repository by one name; `python -m nox --list` shows them.

The checks share one environment, `.nox/dev-<python>`, which holds all packages in editable form and the versions of
constraints.txt. The quickstart has its own, so that it installs only what running a kernel needs. An environment
is filled once and again only when the files that describe it change. Both use the Python that runs nox.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / "constraints.txt"
PREBUILT = ROOT / "packages" / "tile-ops" / "prebuilt"  # a package of data for each vendor
DIST = ROOT / "dist"
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))

QUICKSTART = ["tile-lang[cpu]", "tile-compiler", "tile-runtime", "tile-runtime-cpu"]
TOOLS = [
    "hypothesis",
    "import-linter",
    "msgpack",
    "mypy",
    "nvidia-cuda-nvdisasm",
    "pyelftools",
    "pytest",
    "pytest-xdist",
    "ruff",
    "transformers",
]

# Two worker threads exercise the parallel launch; more would only compete with the other test processes. Many tests start a
# process of their own: it finds our modules compiled.
ENVIRONMENT = {"TILELANG_NUM_THREADS": "2", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["tests", "lint", "types", "imports", "docs"]


def environment(session: nox.Session, name: str, packages: Sequence[str], others: Sequence[str] = ()) -> Path:
    """Python of the environment `name`, made and filled where it does not hold these packages already."""
    home = ROOT / ".nox" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    bin_dir = home / ("Scripts" if os.name == "nt" else "bin")
    python = bin_dir / ("python.exe" if os.name == "nt" else "python")
    editable = [f"--editable={ROOT / 'packages' / package}" for package in packages]

    digest = hashlib.sha256(repr((sys.version, editable, list(others))).encode())
    for path in [CONSTRAINTS, *(package / "pyproject.toml" for package in PACKAGES)]:
        digest.update(path.read_bytes())
    stamp = home / "installed"
    if not (python.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest()):
        session.run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(home), external=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS)]
        pip += ["--no-compile"]  # of all that is installed a check imports little
        session.run(*pip, "hatchling", "editables", external=True)
        session.run(*pip, "--no-build-isolation", *editable, *others, external=True)
        stamp.write_text(digest.hexdigest())
    return python


def development(session: nox.Session) -> Path:
    """Python of the environment that all checks share."""
    extras = {"tile-lang": "[cpu,vis]", "tile-runtime-cuda": "[compile]", "tile-runtime-rocm": "[compile,hip]"}
    return environment(session, "dev", [path.name + extras.get(path.name, "") for path in PACKAGES], TOOLS)


@nox.session(python=False)
def quickstart(session: nox.Session) -> None:
    """Compile a GEMM with fused ReLU for this machine's CPU, run it, compare it with its reference."""
    python = environment(session, "quickstart", QUICKSTART)
    session.run(str(python), str(ROOT / "examples" / "quickstart.py"), *session.posargs, external=True)


@nox.session(python=False)
def launch(session: nox.Session) -> None:
    """Launch an exported CUDA kernel in an environment that has neither TVM nor the compiler (the driver records)."""
    program = str(ROOT / "tests" / "end_to_end" / "launch_alone.py")
    alone = environment(session, "launch", ["tile-runtime", "tile-runtime-cuda"])
    with tempfile.TemporaryDirectory() as folder:
        artifact = str(Path(folder) / "gemm.tile")
        session.run(str(development(session)), program, "export", artifact, external=True)
        session.run(str(alone), program, "launch", artifact, external=True)


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """All tests, in as many processes as there are cores; arguments after -- go to pytest."""
    python = development(session)
    session.run(
        *[str(python), "-m", "pytest", "--numprocesses=auto", "--maxprocesses=8", "--dist=worksteal"],
        *session.posargs,
        env=ENVIRONMENT,
        external=True,
    )


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Style and formatting (ruff); `python -m nox -s lint -- --fix` repairs what it can."""
    python = development(session)
    fix = "--fix" in session.posargs
    session.run(str(python), "-m", "ruff", "check", *(["--fix"] if fix else []), str(ROOT), external=True)
    session.run(str(python), "-m", "ruff", "format", *([] if fix else ["--check"]), str(ROOT), external=True)


@nox.session(python=False)
def types(session: nox.Session) -> None:
    """Types (mypy, strict)."""
    session.run(str(development(session)), "-m", "mypy", *session.posargs, external=True)


@nox.session(python=False)
def imports(session: nox.Session) -> None:
    """Who may import whom; what an import loads is in tests/contracts."""
    python = development(session)
    session.run(str(python.parent / "lint-imports"), "--no-cache", external=True)


@nox.session(python=False)
def docs(session: nox.Session) -> None:
    """Run every Python block of the documentation; check generated pages (-- --write makes them anew)."""
    session.run(str(development(session)), "docs/check.py", *session.posargs, env=ENVIRONMENT, external=True)


#: Tests that launch kernels in the emulator: `full` repeats each launch under a hundred schedules.
EMULATED = [
    "tests/end_to_end/test_examples.py",
    "tests/end_to_end/test_hip_emulated.py",
    "tests/emulated",
    "packages/tile-compiler/tests/simt/test_emulated.py",
    "packages/tile-compiler/tests/cfamily/test_emulated.py",
    "packages/tile-runtime-cpu/tests/emulator/test_hopper_kernels.py",
    "packages/tile-runtime-cpu/tests/emulator/test_kernels.py",
]


@nox.session(python=False)
def full(session: nox.Session) -> None:
    """What takes minutes: the points of grids that are marked `full`; the answers of the compiler's tests after every pass;
    every launch of the emulator's tests for 100 seeds, with copies that complete early and late; every mutant of the
    mutation sweep; each text of the operators for 100 seeds.
    `python -m nox -s full -- 2/3` runs the second third of all but the first two. On a machine with an NVIDIA GPU, torch and the
    packages, the operators' tests run there: `python -m pytest packages/tile-ops/tests --device cuda --full -n 14`.

    Writes tests/full/emulator.json and mutation_sweep.json, which are committed, as tests end: a run that is cut short keeps
    what it has.
    """
    python, part = development(session), session.posargs[0] if session.posargs else "1/1"
    workers = ["--numprocesses=auto", "--maxprocesses=8", "--dist=worksteal"]
    session.run(str(python), "-m", "pytest", *workers, "--full", "-m", "full", env=ENVIRONMENT, external=True)
    passes = [f"packages/tile-compiler/tests/{folder}" for folder in ("simt", "end_to_end")]
    session.run(
        *[str(python), "-m", "pytest", *workers, "--full", "-m", "not full", *passes], env=ENVIRONMENT, external=True
    )
    sweep = ["-m", "pytest", *workers, "-p", "sweep_plugin", "--sweep-seeds=100", f"--sweep-part={part}"]
    sweep += ["--sweep-results=tests/full/emulator.json"]
    env = {"PYTHONPATH": str(ROOT / "tests" / "full"), "OMP_NUM_THREADS": "1"}
    emulated = ["--full", *EMULATED, "-k", "emulated or emulator"]
    session.run(str(python), *sweep, *emulated, env=env, external=True)
    operators = ["--full", "--sweep-of=text", "--sweep-most-blocks=16", "packages/tile-ops/tests"]
    session.run(str(python), *sweep, *operators, env=env, external=True)
    session.run(str(python), "packages/tile-compiler/tests/simt/sweep.py", "--write", "--part", part, external=True)


@nox.session(python=False)
def prebuild(session: nox.Session) -> None:
    """Compile the operators' kernels that are not there yet; `-- --arch sm_90a --family gemm --minutes 20` restricts it."""
    session.run(str(development(session)), "-m", "tile_ops.prebuild", str(PREBUILT), *session.posargs, external=True)


@nox.session(python=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of all packages, and of the kernels that `prebuild` made, into dist/."""
    python = str(development(session))
    made = [folder.parent for folder in PREBUILT.glob("*/*/index.json")]
    if not made:
        session.error("no kernels are prebuilt: run `python -m nox -s prebuild` first")
    shutil.rmtree(DIST, ignore_errors=True)
    shipped = [python, "-m", "tile_runtime.shipped_code", "tile_runtime", "tile_runtime_cpu"]
    objects = session.run(*shipped, external=True, silent=True)
    pip = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    try:
        session.run(*pip, "--wheel-dir", str(DIST), *map(str, [*PACKAGES, *(m.parent for m in made)]), external=True)
    finally:
        for file in str(objects).split():
            Path(file).unlink()  # a source checkout compiles its own, with what it holds
    for wheel in sorted(DIST.iterdir()):
        session.log(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB")


@nox.session(python=False)
def installed(session: nox.Session) -> None:
    """Execute the images' install steps in bare environments (`-- cpu`: one vendor's); run every operator on the CPU.

    Takes the wheels of dist/. For GPUs, which are not here, it looks at what is installed: no compiler, hashes in order.
    """
    for vendor in session.posargs or ["cpu", "cuda", "rocm"]:
        home = ROOT / ".nox" / f"installed-{vendor}"
        session.run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(home), external=True)
        bin_dir = home / "bin"
        # The torch of the other checks, from where pip finds it here; nothing else of this process's Python is seen.
        env = {"PATH": f"{bin_dir}:/usr/bin:/bin", "PYTHONPATH": "", "PIP_QUIET": "1"}
        env |= {"TORCH_INDEX": "", "PIP_CONSTRAINT": str(CONSTRAINTS)}
        session.run(str(ROOT / f"packages/tile-runtime-{vendor}/image/install.sh"), str(DIST), env=env, external=True)
        program = str(ROOT / "packages" / "tile-ops" / "tests" / "installed.py")
        device = "cpu" if vendor == "cpu" else "none"
        session.run(str(bin_dir / "python"), program, "--device", device, env=env, external=True)


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks: ours, the peers and the bound in one run."""
    session.run(str(development(session)), "benchmarks/run.py", *session.posargs, external=True)
