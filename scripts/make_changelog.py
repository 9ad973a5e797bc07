"""Moves the fragments in changes/ into CHANGELOG.md, as a release.

make_changelog.py 0.2.0 [2027-01-31]     a release of today, or of that day
make_changelog.py --notes 0.2.0          print what CHANGELOG.md says of a release
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


def section(version: str, date: str, fragments: Mapping[str, str]) -> str:
    """A release's text from its fragments, which are texts by file name."""
    lines = [f"## {version} - {date}", ""]
    for kind in KINDS:
        texts = [text for name, text in sorted(fragments.items()) if name.split(".")[1] == kind]
        if texts:
            lines += [f"### {kind.capitalize()}", ""]
            lines += [f"- {' '.join(text.split())}" for text in texts]
            lines.append("")
    return "\n".join(lines)


def released(changelog: str, version: str, new: str) -> str:
    """The changelog with a release on top, in the place of its own unreleased section if there is one."""
    unreleased = re.compile(
        rf"^## {re.escape(version)} \(unreleased\)\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL
    )
    without = unreleased.sub("", changelog)
    head, first, rest = without.partition("\n## ")
    return f"{head.rstrip()}\n\n{new.rstrip()}\n" + (f"\n## {rest}" if first else "")


def notes(changelog: str, version: str) -> str | None:
    """What the changelog says of a release, without its heading; None where it has none."""
    of_release = re.compile(rf"^## {re.escape(version)} - [^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    found = of_release.search(changelog)
    return found and found.group(1).strip() + "\n"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--notes":
        told = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), arguments[1])
        if told is None:
            print(
                f"CHANGELOG.md has no release {arguments[1]}: make_changelog.py {arguments[1]}",
                file=sys.stderr,
            )
            return 1
        print(told, end="")
        return 0
    if not arguments or not re.fullmatch(r"\d+\.\d+\.\d+\S*", arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    version = arguments[0]
    date = arguments[1] if len(arguments) > 1 else datetime.date.today().isoformat()
    paths = sorted((ROOT / "changes").glob("*.*.md"))
    if not paths:
        print("there is nothing in changes/ to release", file=sys.stderr)
        return 1
    new = section(version, date, {path.name: path.read_text(encoding="utf-8") for path in paths})
    changelog = ROOT / "CHANGELOG.md"
    changelog.write_text(released(changelog.read_text(encoding="utf-8"), version, new), encoding="utf-8")
    for path in paths:
        path.unlink()
    print(f"CHANGELOG.md: {version}, {len(paths)} changes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
