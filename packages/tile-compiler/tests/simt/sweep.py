"""The mutation sweep: from correct kernels one synchronization or predicate is left out or weakened at a time.

`python packages/tile-compiler/tests/simt/sweep.py --write` runs all of it, a kernel in each of `--jobs` processes, and writes
tests/full/mutation_sweep.json; names of kernels as arguments restrict it, `--part 1/3` takes every third kernel and keeps
the entries of the others.
Every mutant runs in the emulator, copies early and late, with a few seeds, and goes through the compiler's checker. A
mutant counts as

* reported: the emulator names a fault;
* wrong: only the answer shows it (a predicate whose reads stay inside their buffer: no fault of memory);
* redundant: the checker proves the kernel without this synchronization;
* always true: a predicate that was true at each of its evaluations in the launch, by all threads, which are counted;
* same function: a predicate without which every output is the same expression of the inputs as before, found by
  executing both with fingerprints of expressions in place of numbers (terms.py), and without which the emulator sees
  every access inside its buffer, of written memory and ordered (bulk copies and products of warpgroups have no
  fingerprints: of these kernels the emulator compares the bits of outputs for random inputs);
* gap: nothing of this holds. There must be none, nor a race in shared memory that the emulator reports and the checker
  lets pass.

What survives (the last three but gap) carries its `proof`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import terms
from device_texts import Text, launch_text, lowered, printed
from mutants import Predicate, conditioned, mutants, predicate_mutants, refuted
from mutation_kernels import SUBJECTS, Subject
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import is_call
from tile_compiler.simt.lower_atomics import lower_atomics
from tile_compiler.simt.roles.split_roles import split_roles
from tilelang.interpreter.errors import InterpreterError
from tilelang.ir import tile_ir

RESULT = Path(__file__).resolve().parents[4] / "tests" / "full" / "mutation_sweep.json"
RUNS = [("early", 0), ("late", 0), ("late", 1), ("early", 2)]
#: For what the checker refutes and these do not show: it takes a certain order of warps.
MORE = [(mode, seed) for seed in range(3, 23) for mode in ("early", "late")]
INTERPRETATIONS = 3  # sets of random inputs of fingerprints

Outcome = dict[str, Any]


def sweep(subject: Subject, limit: int | None = None) -> list[Outcome]:
    """One entry for each mutant of a kernel (`limit`: so many of each kind, spread over all)."""
    bench = _Bench(subject)
    found = []
    for mutant, change in _spread(mutants(bench.final), limit):
        outcome = {"kernel": subject.name, "change": _words(change.was, change.now), **bench.judge(mutant, 1)}
        if outcome["verdict"] == "gap" and outcome["checker"] == "proved":
            outcome |= {"verdict": "redundant", "proof": "the checker finds every pair of accesses ordered without it"}
        found.append(outcome)
    for mutant, predicate in _spread(predicate_mutants(bench.final), limit):
        outcome = {"kernel": subject.name, "change": str(predicate), **bench.judge(mutant, 2)}
        if outcome["verdict"] == "gap":
            outcome |= bench.prove(mutant, predicate)
        found.append(outcome)
    return found


def _spread(made: Iterable[Any], limit: int | None) -> list[Any]:
    found = list(made)
    if limit is None or len(found) <= limit:
        return found
    return [found[n * len(found) // limit] for n in range(limit)]


def _words(was: str, now: str) -> str:
    return f"{was} -> {now}" if now else f"without {was}"


class _Bench:
    """Runs mutants of one kernel and compares them with the correct one."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.func = subject, subject.make()
        trace, self.ctx = lowered(self.func, subject.arch, subject.options)
        #: What the checker sees; the passes after it change neither synchronization nor predicates.
        self.final = next(s.after for s in trace.steps if s.name == "check_synchronization")
        self.data = [subject.arguments(self.func)]
        self.data.append([_with_infinity(a) for a in self.data[0]])
        self.right = {}
        text = self._text(self.final)
        for mode, seed in RUNS:
            for n, args in enumerate(self.data):
                reports, self.right[mode, seed, n] = self._launch(text, args, mode, seed)
                assert not any(r.errors for r in reports), f"{subject.name} itself: {reports[0].errors}"
        self._terms: dict[int, Any] = {}

    def _text(self, func: Any) -> Text:
        """The text of what the checker sees, after the passes that follow it."""
        return printed(self.func, lower_atomics(split_roles(func, self.ctx), self.ctx), self.ctx)

    def _launch(self, text: Text, args: list[Any], mode: str, seed: int) -> tuple[list[Any], list[Any]]:
        return launch_text(text, self.func, args, mode, seed)

    def judge(self, mutant: Any, data: int) -> Outcome:
        """The first run that shows something; faults before wrong answers. `data`: how many sets of arguments."""
        refused = refuted(mutant, self.ctx)
        checker = {"checker": "refuted" if refused else "proved"}
        wrong, text = "", self._text(mutant)
        for mode, seed in [*RUNS, *(MORE if refused and data == 1 else ())]:
            for n, args in enumerate(self.data[:data]):
                reports, work = self._launch(text, args, mode, seed)
                errors = [e for r in reports for e in r.errors]
                if errors:
                    finding = {"as": errors[0].kind, "of": errors[0].buffer}
                    return {"verdict": "reported", **finding, "run": f"{mode} {seed}", **checker}
                right = self.right.get((mode, seed, n), work)
                if not wrong and not all(_equal(a, b) for a, b in zip(work, right)):
                    wrong = f"{mode} {seed}"
        return {"verdict": "wrong", "run": wrong, **checker} if wrong and data > 1 else {"verdict": "gap", **checker}

    def prove(self, mutant: Any, predicate: Predicate) -> Outcome:
        """That a mutant without a predicate does what the kernel does; nothing where that is not so."""

        if any(name.startswith(("tl::mbarrier", "tl::wgmma")) for name in _calls(self.final)):
            return self._in_the_emulator(mutant, predicate)

        def watched(condition: Any) -> Any:
            return tir.call_extern("bool", terms.WATCH, condition, predicate.now)

        inputs = terms.random_inputs(self.data[0], 0)
        _, (count, different) = terms.outputs(conditioned(self.final, predicate.which, watched)[0], inputs)
        if not different:
            return {"verdict": "always true", "proof": f"true at all {count} evaluations of the launch"}
        for seed in range(INTERPRETATIONS):
            inputs = terms.random_inputs(self.data[0], seed)
            if seed not in self._terms:
                self._terms[seed] = terms.outputs(self.final, inputs)[0]
            try:
                ours, _ = terms.outputs(mutant, inputs)
            except InterpreterError as error:
                return {"why": str(error).splitlines()[0]}
            if not terms.same(ours, self._terms[seed]):
                return {"why": "another expression"}
        words = f"false at {different} of {count} evaluations, and every output is the same expression of the inputs"
        return {"verdict": "same function", "proof": words}

    def _in_the_emulator(self, mutant: Any, predicate: Predicate) -> Outcome:
        """The same of a kernel that fingerprints cannot follow: the emulator runs it with an access out of bounds wherever
        the predicate is false, then both on random numbers."""
        (first, *_) = (p for p in self.func.params if tile_ir.is_buffer(p))
        beyond = [first.ty.shape[0], *(tir.const(0, "int32") for _ in first.ty.shape[1:])]

        def trapped(condition: Any) -> Any:
            return prim.Or(condition, tir.NE(tir.BufferLoad(first, beyond), tir.const(0, str(first.ty.dtype))))

        text = self._text(conditioned(self.final, predicate.which, trapped)[0])
        launches = [self._launch(text, args, *run)[0] for run in RUNS for args in self.data]
        if not any(r.errors for reports in launches for r in reports):
            return {"verdict": "always true", "proof": "true at all evaluations of the launch: a false one is trapped"}
        ours, theirs = self._text(mutant), self._text(self.final)
        for seed in range(INTERPRETATIONS):
            args = self.subject.arguments(self.func, 1 + seed)
            for run in RUNS:
                _, work = self._launch(ours, args, *run)
                _, right = self._launch(theirs, args, *run)
                if any(a.tobytes() != b.tobytes() for a, b in zip(work, right)):
                    return {"why": "another result"}
        words = f"false somewhere; {INTERPRETATIONS} sets of random inputs give the same bits under every schedule"
        return {"verdict": "same function", "proof": words}


def _calls(func: Any) -> list[str]:
    return [str(n.args[0].value) for n in tile_ir.walk(func.body) if is_call(n, "tirx.call_extern")]


def _with_infinity(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with an infinite first row and a few infinite elements elsewhere."""
    new = array.copy()
    if new.dtype.kind == "f" and new.size:
        flat = new.reshape(-1)
        flat[: max(1, new.shape[-1])] = np.inf
        flat[:: max(2, 7 * new.shape[-1] // 3)] = np.inf
    return new


def _equal(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    wide = a.dtype if a.dtype.kind in "iub" else np.dtype("float64")
    return bool(np.allclose(a.astype(wide), b.astype(wide), 1e-3, 1e-3, equal_nan=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the result file")
    parser.add_argument("--part", default="1/1", help="2/3: of every three kernels the second")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (one for each core)")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    names = [s.name for s in SUBJECTS if s.name in options.names or not options.names][number - 1 :: parts]
    found: list[Outcome] = []
    # Processes of their own: a fork of TVM's threads may wait for ever. The kernels of Hopper, which take longest, are last
    # in the list and begin first.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(sweep_named, name): name for name in reversed(names)}
        for done in as_completed(pending):
            entries = done.result()
            found += entries
            print(pending[done], dict(Counter(e["verdict"] for e in entries)), flush=True)
            if options.write:  # at once: who ends it early keeps what it has found
                write(entries, {pending[done]})
    gaps = [e for e in found if e["verdict"] == "gap" or missed(e)]
    print(json.dumps({"mutants": len(found), **Counter(e["verdict"] for e in found), "gaps": gaps}, indent=1))
    return 1 if gaps else 0


def sweep_named(name: str) -> list[Outcome]:
    """The sweep of one kernel of the list."""
    return sweep(next(s for s in SUBJECTS if s.name == name))


def write(found: list[Outcome], swept: set[str]) -> None:
    """The result file: what was found now, and what it has of other kernels."""
    known = json.loads(RESULT.read_text()) if RESULT.exists() else []
    order = {s.name: n for n, s in enumerate(SUBJECTS)}
    entries = [*found, *(e for e in known if e["kernel"] in order and e["kernel"] not in swept)]
    entries.sort(key=lambda e: order[e["kernel"]])
    RESULT.write_text("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n")


def missed(entry: Outcome) -> bool:
    """Whether the emulator reports a race in shared memory that the checker lets pass."""
    if entry["verdict"] != "reported" or entry["checker"] != "proved":
        return False
    in_shared_memory = not entry["of"].startswith("argument ")  # of the launch
    return not entry["change"].startswith("predicate") or (entry["as"].startswith("race-") and in_shared_memory)


if __name__ == "__main__":
    sys.exit(main())
