"""Run every Python block of the documentation, and check that generated pages are current.

    python docs/check.py [--write] [PAGE ...]

The blocks of a page that are fenced as ```python run in one process, in order, at the line numbers they have in the
page, with the repository as working directory. A block fenced as ```python no-run is for reading only: it shows a
form, not a program. With --write, generated pages are written anew instead of compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from generate_errors import errors_page

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```+)(.*)$")


def pages() -> list[Path]:
    """All pages of the documentation: top level, docs/, packages."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
    return sorted(found)


def program(page: Path) -> str:
    """The page's Python blocks, every other line blank, so that line numbers are those of the page."""
    lines: list[str] = []
    fence, runs = "", False
    for line in page.read_text().splitlines():
        match = FENCE.match(line)
        if match and not fence:
            fence, runs = match[1], match[2].strip() == "python"
            lines.append("")
        elif match and match[1] == fence and not match[2].strip():
            fence, runs = "", False
            lines.append("")
        else:
            lines.append(line if runs else "")
    return "\n".join(lines) + "\n"


def run(page: Path, folder: Path) -> tuple[bool, str]:
    """Run the page's blocks in a fresh process: whether that went well, and what to say. Without blocks it does."""
    source = program(page)
    if not source.strip():
        return True, ""
    name = str(page.relative_to(ROOT))
    file = folder / (name.replace(os.sep, "_") + ".py")
    file.write_text(source)
    environment = {**os.environ, "TILELANG_CACHE_DIR": str(folder / "cache"), "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, str(file)], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return True, f"{name}: ok"
    return False, f"{name}: FAILED\n" + (done.stdout + done.stderr).replace(str(file), name)


def current(page: Path, text: str, write: bool) -> bool:
    """Write the generated page, or say whether the one that is there is the same."""
    if write:
        page.write_text(text)
    same = page.exists() and page.read_text() == text
    print(
        f"{page.relative_to(ROOT)}: {'current' if same else 'OUTDATED: python -m nox -s docs -- --write'}", flush=True
    )
    return same


def main() -> int:
    """Exit status: 0 where everything runs and is current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write generated pages anew")
    parser.add_argument("pages", nargs="*", type=Path, help="run only these pages")
    options = parser.parse_args()
    results = [current(ROOT / "docs" / "errors.md", errors_page(), options.write)]
    with tempfile.TemporaryDirectory(prefix="tilelang-docs-") as folder:
        chosen = [page.resolve() for page in options.pages] or pages()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for good, text in pool.map(lambda page: run(page, Path(folder)), chosen):
                results.append(good)
                if text:
                    print(text, flush=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
