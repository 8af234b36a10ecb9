"""The list of modules in ARCHITECTURE.md, made from their own first sentences.

`python -m tests.repository.modules` rewrites the list; a test compares it.
"""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- modules: begin -->", "<!-- modules: end -->"
OURS = ("gpu_runtime", "platform", "tenants", "jobs", "frontend")


def modules() -> list[Path]:
    """Every tracked module of the product, without package markers, migrations and app declarations."""
    listing = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in listing.stdout.splitlines()]
    uninteresting = {"__init__.py", "apps.py"}
    return [p for p in paths if p.parts[0] in OURS and p.name not in uninteresting and "migrations" not in p.parts]


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line. Raises ValueError if there is none."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text()))
    if not text:
        raise ValueError(f"{path} has no docstring")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]


def listing() -> str:
    """One heading per folder, one line per module."""
    folders: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in modules():
        folders[path.parent].append(path)
    blocks = []
    for folder in sorted(folders, key=lambda f: (OURS.index(f.parts[0]), f.parts)):
        lines = [f"- `{path.name}` {first_sentence(path)}" for path in sorted(folders[folder])]
        blocks.append("\n".join([f"### {folder}/", "", *lines]))
    return "\n\n".join(blocks)


def page_with_listing(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{listing()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_listing(PAGE.read_text()))
