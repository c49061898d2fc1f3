"""The mutation sweep: from correct kernels one synchronization or predicate is left out or weakened at a time.

`python packages/tile-compiler/tests/simt/sweep.py --write` runs all of it and writes tests/full/mutation_sweep.json;
names of kernels as arguments restrict it. Every mutant runs in the emulator, copies early and late, with a few seeds,
and one of synchronization goes through the compiler's checker too. A mutant counts as

* reported: the emulator names a fault;
* wrong: only the answer shows it (a predicate whose reads stay inside their buffer: no fault of memory);
* redundant: the checker proves the kernel without it;
* always true: a predicate that no thread of the launch ever finds false, by an assertion in its place;
* no effect: a predicate without which every access is still inside its buffer and written by someone, no two threads
  write different values to one place (equal ones are no race), and every answer is the same, also where the
  data are infinite, so that nothing is hidden by a product with zero;
* gap: a synchronization for which nothing of this holds. There must be none, nor one that the emulator reports and
  the checker lets pass.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from conftest import launch_text, lowered, printed
from mutants import mutants, refuted
from mutation_kernels import SUBJECTS, Subject

RESULT = Path(__file__).resolve().parents[4] / "tests" / "full" / "mutation_sweep.json"
RUNS = [("early", 0), ("late", 0), ("late", 1), ("early", 2)]

Outcome = dict[str, Any]


def sweep(subject: Subject, limit: int | None = None) -> list[Outcome]:
    """One entry for each mutant of a kernel (the first `limit` of each kind)."""
    func = subject.make()
    trace, _ = lowered(func, subject.arch)
    final = next(s.after for s in trace.steps if s.name == "check_synchronization")
    last = trace.steps[-1].after
    bench = _Bench(subject, func, printed(func, last))
    found = []
    for number, (mutant, change) in enumerate(mutants(final)):
        if limit is not None and number >= limit:
            break
        # What follows the checker changes no synchronization, so the same edit of the last form is the same mutant.
        text, _ = printed(func, dict(enumerate(m for m, _ in mutants(last)))[number])
        outcome = {
            "kernel": subject.name,
            "change": _words(change.was, change.now),
            **bench.judge(text, synchronization=True),
        }
        outcome["checker"] = "refuted" if refuted(mutant) else "proved"
        if outcome["verdict"] == "gap" and outcome["checker"] == "proved":
            outcome["verdict"] = "redundant"
        found.append(outcome)
    for number, (text, asserted, words) in enumerate(predicates(bench.text)):
        if limit is not None and number >= limit:
            break
        outcome = {"kernel": subject.name, "change": words, **bench.judge(text, synchronization=False)}
        if outcome["verdict"] == "gap" and bench.quiet(asserted):
            outcome["verdict"] = "always true"
        elif outcome["verdict"] == "gap":
            outcome["verdict"] = "no effect"
        found.append(outcome)
    return found


def _words(was: str, now: str) -> str:
    return f"{was} -> {now}" if now else f"without {was}"


class _Bench:
    """Runs texts of one kernel and compares them with the correct one."""

    def __init__(self, subject: Subject, func: Any, correct: tuple[str, Any]) -> None:
        self.func = func
        self.text, self.launches = correct
        self.data = [subject.arguments(func)]
        self.data.append([_with_infinity(a) for a in self.data[0]])
        self.right = {}
        for mode, seed in RUNS:
            for n, args in enumerate(self.data):
                reports, work = launch_text(self.text, self.launches, func, args, mode, seed)
                assert not any(r.errors for r in reports), f"{subject.name} itself: {reports[0].errors}"
                self.right[mode, seed, n] = work

    def judge(self, text: str, synchronization: bool) -> Outcome:
        """The first run that shows something; faults before wrong answers."""
        wrong = ""
        for mode, seed in RUNS:
            for n, args in enumerate(self.data[: 1 if synchronization else 2]):
                reports, work = launch_text(text, self.launches, self.func, args, mode, seed)
                errors = [e for r in reports for e in r.errors]
                if errors:
                    return {"verdict": "reported", "as": errors[0].kind, "run": f"{mode} {seed}"}
                if not wrong and not all(_equal(a, b) for a, b in zip(work, self.right[mode, seed, n])):
                    wrong = f"{mode} {seed}"
        return {"verdict": "wrong", "run": wrong} if wrong and not synchronization else {"verdict": "gap"}

    def quiet(self, text: str) -> bool:
        """Whether no assertion of a text fails."""
        reports = [launch_text(text, self.launches, self.func, self.data[0], *run)[0] for run in RUNS[:1]]
        return not any(e for report in reports for r in report for e in r.errors)


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


# -- predicates, in the text ----------------------------------------------------------------------------------

_IF = re.compile(r"^ *if \((.*)\) \{$", re.MULTILINE)
_CHOICE = re.compile(r"^.* = (.+?) \? .*$", re.MULTILINE)
_ZEROS = re.compile(r"tl::cp_async<\d+>\(")


def predicates(text: str) -> Iterator[tuple[str, str, str]]:
    """(mutant, the text with an assertion instead, what was changed): each predicate and each part of one left out."""
    for start, end in _conditions(text):
        condition = text[start:end]
        parts = _split(condition, " && ")
        choices = [("true", condition)]
        if len(parts) > 1:
            choices += [(" && ".join(p for p in parts if p is not part), part) for part in parts]
        for rest, part in choices:
            checked = f"(tl::device_assert(!({rest}) || ({part}), 0), ({condition}))"
            words = f"line {text.count(chr(10), 0, start) + 1}: without {part.strip()}"
            yield text[:start] + rest + text[end:], text[:start] + checked + text[end:], words


def _conditions(text: str) -> list[tuple[int, int]]:
    """Where predicates stand: of an `if`, of a choice, of a copy that fills with zeros (its third argument)."""
    found = [m.span(1) for pattern in (_IF, _CHOICE) for m in pattern.finditer(text)]
    for call in _ZEROS.finditer(text):
        inside = _split(text[call.end() :], ")")[0]
        arguments = _split(inside, ",")
        end = call.end() + len(inside)
        if len(arguments) == 3 and arguments[2].strip() != "false":
            found.append((end - len(arguments[2].lstrip()), end))
    return sorted(found)


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no bracket."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text) and depth >= 0:
        if depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position])
            start = position = position + len(separator)
            if separator == ")":
                return parts
            continue
        depth += (text[position] in "([") - (text[position] in ")]")
        position += 1
    return [*parts, text[start:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the result file")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    found: list[Outcome] = []
    for subject in SUBJECTS:
        if options.names and subject.name not in options.names:
            continue
        entries = sweep(subject)
        found += entries
        print(subject.name, dict(Counter(e["verdict"] for e in entries)), flush=True)
    gaps = [e for e in found if e["verdict"] == "gap" or missed(e)]
    print(json.dumps({"mutants": len(found), **Counter(e["verdict"] for e in found), "gaps": gaps}, indent=1))
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text("[\n" + ",\n".join(json.dumps(e) for e in found) + "\n]\n")
    return 1 if gaps else 0


def missed(entry: Outcome) -> bool:
    """Whether the emulator reports a mutant of the synchronization that the checker lets pass."""
    return entry["verdict"] == "reported" and entry.get("checker") == "proved"


if __name__ == "__main__":
    sys.exit(main())
