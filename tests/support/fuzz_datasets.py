"""Mutates the files of a valid dataset and validates each mutant, under a memory limit.

``python -m tests.support.fuzz_datasets DATASET SCRATCH COUNT SEED`` prints one JSON line. It runs as a process of its
own because damaged media may crash a decoder, which must fail a test and not the test runner.
"""

import json
import random
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_runtime.data.validation import validate_dataset
from gpu_runtime.protocol.schema import ValidationReport

MEMORY_BYTES = 3 * 2**30
ODD_VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    10**30,
    1.5,
    "",
    "../x",
    [],
    {},
    True,
    "x" * 5000,
    float("nan"),
    [[[]]],
    "\ud800",
)


def flip(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)


def truncate(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def remove(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    del content[start : start + chance.randint(1, 200)]


def insert(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content)) : 0] = chance.randbytes(chance.randint(1, 200))


def overwrite(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    length = min(chance.choice((4, 8, 64, 1000)), len(content) - start)
    content[start : start + length] = bytes([chance.choice((0, 0x7F, 0x80, 0xFF))]) * length


def replace_json_value(content: bytearray, chance: random.Random) -> None:
    """An odd value or a removed key somewhere in the JSON of the file (of one line, where it is JSON lines)."""
    lines = content.decode().splitlines()
    if content.count(b"\n{") == 0:
        lines = [content.decode()]
    line = chance.randrange(len(lines))
    value = json.loads(lines[line])
    if not value:
        return
    holder, key = _random_place(value, chance)
    if isinstance(holder, dict) and chance.random() < 0.3:
        del holder[key]
    else:
        holder[key] = chance.choice(ODD_VALUES)
    lines[line] = json.dumps(value)
    content[:] = "\n".join(lines).encode("utf-8", "surrogatepass")


def _random_place(value: Any, chance: random.Random) -> tuple[Any, Any]:
    """A container in ``value`` that is not empty, and one of its keys."""
    key = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
    child = value[key]
    if not isinstance(child, dict | list) or not child or chance.random() < 0.2:
        return value, key
    return _random_place(child, chance)


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (flip, truncate, remove, insert, overwrite)


def mutate(path: Path, chance: random.Random) -> str:
    """Change one file in place; returns the name of the mutation."""
    kind = chance.choice(BYTES)
    if path.suffix in (".json", ".jsonl") and chance.random() < 0.7:
        kind = replace_json_value
    content = bytearray(path.read_bytes())
    kind(content, chance)
    path.write_bytes(content)
    return kind.__name__


def run(dataset: Path, scratch: Path, count: int, seed: int) -> dict[str, Any]:
    """Validate ``count`` mutants; an exception ends the run and names the mutant."""
    names = sorted(path.relative_to(dataset) for path in dataset.rglob("*") if path.is_file())
    codes: Counter[str] = Counter()
    unnoticed = 0
    for number in range(count):
        chance = random.Random(f"{seed}:{number}")
        mutant = Path(shutil.copytree(dataset, scratch / "mutant"))
        name = chance.choice(names)
        kind = mutate(mutant / name, chance)
        print(number, name, kind, file=sys.stderr, flush=True)
        report = validate_dataset(mutant)
        if ValidationReport.model_validate_json(report.model_dump_json(by_alias=True)).ok != report.ok:
            raise AssertionError("a report does not survive JSON")
        if any(defect.file is None and defect.code != "more_defects" for defect in report.defects):
            raise AssertionError(f"a defect names no file: {report.defects}")
        codes.update({defect.code for defect in report.defects})
        unnoticed += report.ok
        shutil.rmtree(mutant)
    return {"mutants": count, "still_valid": unnoticed, "peak_bytes": _peak_bytes(), "codes": dict(codes)}


def _peak_bytes() -> int:
    """This program's own peak; ``ru_maxrss`` would include the size of the process that forked us."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    source, folder, mutants, start = sys.argv[1:]
    print(json.dumps(run(Path(source), Path(folder), int(mutants), int(start))))
