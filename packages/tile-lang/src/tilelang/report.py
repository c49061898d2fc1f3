"""`kernel.report()`: what the compiler decided, as plain data and as a text to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact

#: What is told of each variant; the rest of a report, of the first alone.
OF_A_VARIANT = ("kernels", "notes", "passes", "device_compiler")


class KernelReport(dict[str, Any]):
    """A dict of plain values (docs/internals/report.md lists them); printed, it is a page to read."""

    @classmethod
    def of(cls, artifact: Artifact) -> KernelReport:
        """The report on the first variant, and under `variants` on each: the calls that it serves, its kernels, notes and
        times."""
        from tile_runtime.expression import to_text

        told = zip(artifact.reports, artifact.manifest.variants)
        variants = [
            {"calls": None if variant.guard is None else to_text(variant.guard)}
            | {name: report[name] for name in OF_A_VARIANT if name in report}
            for report, variant in told
        ]
        return cls({**(artifact.report or {}), "variants": variants})

    @property
    def data(self) -> dict[str, Any]:
        """The values as a plain dict."""
        return dict(self)

    def __str__(self) -> str:
        variants = self.get("variants", [])
        several = len(variants) > 1 or any(variant["calls"] for variant in variants)
        lines = [_served(1, variants[0])] if several else []
        for kernel in self.get("kernels", []):
            lines += kernel_lines(kernel, self.get("emulated", {}).get(kernel["symbol"]))
        lines += ["decisions:", *map(_note, self.get("notes", []))]
        for number, variant in enumerate(variants[1:], 2):
            lines.append(_served(number, variant))
            for kernel in variant.get("kernels", []):
                lines += [_head(kernel), *_operators(kernel)]
            lines += [_note(note) for note in variant.get("notes", []) if note not in self["notes"]]
        if several and variants[-1]["calls"]:
            lines.append("other calls: compiled when one comes; report(every_variant=True) compiles for them now")
        if self.get("assumed"):
            lines += ["assumed:", *(f"  {text}" for text in self["assumed"])]
        passes, device = self.get("passes", {}), self.get("device_compiler") or {}
        if passes:
            each = ", ".join(f"{name} {1e3 * seconds:.0f}" for name, seconds in passes.items())
            lines.append(f"passes: {1e3 * sum(passes.values()):.0f} ms ({each})")
        if device:
            lines.append(f"device compiler: {device['name']}, {1e3 * device['seconds']:.0f} ms")
        return "\n".join(lines)


def kernel_lines(kernel: Mapping[str, Any], counted: Mapping[str, int] | None) -> list[str]:
    """The part of one kernel; `counted` is what the emulator found at the last call."""
    lines = [_head(kernel)]
    if kernel.get("bound"):
        lines.append(f"  at least {_bound(kernel['bound'])}")
    lines += _operators(kernel)
    if kernel.get("layouts"):
        lines += ["  layouts:", *(f"    {name}: {text}" for name, text in kernel["layouts"].items())]
    if "accesses" in kernel:
        lines += _conflicts(kernel["accesses"])
    if kernel.get("counters"):
        lines += _counters(kernel["counters"], counted, bool(kernel.get("exact")))
    return lines


def _head(kernel: Mapping[str, Any]) -> str:
    parts = [f"grid {' x '.join(kernel['grid'])}"]
    if "threads" in kernel:
        parts.append(f"{kernel['threads']} threads")
    parts.append(f"{kernel.get('shared_bytes', kernel.get('scratch_bytes', 0))} bytes of shared memory")
    if "registers" in kernel:
        spills = f"{kernel['spills']} bytes of spills" if kernel["spills"] else "no spills"
        parts.append(f"{kernel['registers']} registers, {spills}")
    if kernel.get("occupancy"):
        found = kernel["occupancy"]
        share = 100 * found["threads"] // found["of_threads"]
        parts.append(
            f"{found['blocks']} blocks a multiprocessor ({share}% of its threads; limit: {found['limited_by']})"
        )
    return f"{kernel['symbol']}: {', '.join(parts)}"


def _served(number: int, variant: Mapping[str, Any]) -> str:
    """The line over a variant."""
    return f"variant {number}, " + (f"where {variant['calls']}:" if variant["calls"] else "for all other calls:")


def _operators(kernel: Mapping[str, Any]) -> list[str]:
    lines = []
    for operator in kernel.get("operators", []):
        lines.append(f"  {_short(operator['at'])}  {operator['operator']}: {_made_of(operator)}")
        lines += [f"      {reason}" for reason in operator["why"]]
    return lines


def _note(note: Mapping[str, Any]) -> str:
    return f"  {_short(note['at'])}  {note['text']}".rstrip()


def _bound(bound: Mapping[str, Any]) -> str:
    if bound["seconds"] is None:
        return f"? on {bound['chip']}: {bound['by']}"
    each = ", ".join(f"{name} {1e6 * s:.3g}" for name, s in bound["each"].items() if s)
    return f"{1e6 * bound['seconds']:.3g} us on {bound['chip']}, by {bound['by']} ({each} us)"


def _made_of(operator: Mapping[str, Any]) -> str:
    widths = ", ".join(f"{buffer} {width}" for buffer, width in operator["widths"].items())
    parts = [*operator["instructions"], *([f"{widths} bytes at once"] if widths else [])]
    return "; ".join(parts) or "registers only"


def _conflicts(accesses: Iterable[Mapping[str, Any]]) -> list[str]:
    """The accesses of shared memory that take more turns than they need."""
    shared = [a for a in accesses if a["space"] == "shared"]
    bad = [a for a in shared if a["wavefronts"] > a["conflict_free"]]
    if not bad:
        return ["  no bank conflicts"] if shared else []
    lines = ["  bank conflicts:"]
    for a in bad:
        times = a["wavefronts"] / a["conflict_free"]
        lines.append(
            f"    {_short(a['at'])}  {a['kind']} of {a['buffer']}, {a['width']} bytes: {times:.3g} turns for 1"
        )
    return lines


def _counters(predicted: Mapping[str, int], counted: Mapping[str, int] | None, exact: bool) -> list[str]:
    lines = [f"  one launch{'' if exact else ' (estimated)'}:" + (" predicted, emulated" if counted else "")]
    for name, value in predicted.items():
        other = None if counted is None else counted.get(name)
        if value or other:
            lines.append(f"    {name}: {value}" + ("" if other is None else f", {other}"))
    return lines


def _short(at: str) -> str:
    """main.py:12 of /home/me/main.py:12."""
    file, _, line = at.rpartition(":")
    return f"{PurePath(file).name}:{line}" if file else at
