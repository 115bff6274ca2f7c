#!/usr/bin/env python3
"""Counts the lines of src/ without tests, for each top-level module.

    benches/count_lines.py [FOLDER]      FOLDER is src/ unless given

`lines` are all lines of the files, `code` those that aren't blank and aren't comments. What is under `#[cfg(test)]`,
whole modules included, isn't counted. The code must be formatted with rustfmt: an item ends at a closing brace that is
indented like its first line.
"""
import re
import sys
from pathlib import Path


def test_modules(root):
    """The files and folders of the modules that are declared under `#[cfg(test)]`."""
    found = set()
    for path in root.rglob("*.rs"):
        folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        for name in re.findall(r"#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod (\w+);", path.read_text()):
            found |= {folder / name, folder / f"{name}.rs"}
    return found


def without_tests(lines):
    """The lines outside of items under `#[cfg(test)]`."""
    kept, at = [], 0
    while at < len(lines):
        if lines[at].strip() != "#[cfg(test)]":
            kept.append(lines[at])
            at += 1
            continue
        at += 1
        while lines[at].strip().startswith("#["):
            at += 1
        first = lines[at].rstrip()
        if not first.endswith((";", "}")):
            indent = first[: len(first) - len(first.lstrip())]
            while lines[at].rstrip() not in (indent + "}", indent + "};"):
                at += 1
        at += 1
    return kept


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "src"
    counts = {}
    tests = test_modules(root)
    for path in sorted(root.rglob("*.rs")):
        relative = path.relative_to(root)
        if path in tests or not tests.isdisjoint(path.parents):
            continue
        lines = without_tests(path.read_text().splitlines())
        code = [line for line in lines if line.strip() and not line.strip().startswith("//")]
        module = relative.parts[0].removesuffix(".rs")
        before = counts.get(module, (0, 0, 0))
        counts[module] = (before[0] + len(lines), before[1] + len(code), before[2] + 1)
    print(f"{'module':20}{'lines':>8}{'code':>8}{'files':>8}")
    for module, (lines, code, files) in sorted(counts.items(), key=lambda row: -row[1][0]):
        print(f"{module:20}{lines:8}{code:8}{files:8}")
    lines, code, files = (sum(column) for column in zip(*counts.values()))
    print(f"{'total':20}{lines:8}{code:8}{files:8}")


if __name__ == "__main__":
    main()
