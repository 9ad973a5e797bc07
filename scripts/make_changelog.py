"""Moves the fragments in changes/ into CHANGELOG.md, as a release.

make_changelog.py 0.2.0 [2027-01-31]     a release dated today, or on that day
make_changelog.py --notes 0.2.0          print what CHANGELOG.md says about a release
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


def entries(fragments: Mapping[str, str]) -> dict[str, list[str]]:
    """The texts of the fragments, given by file name, as items of a list; by kind, such as `Added`."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        texts = [text for name, text in sorted(fragments.items()) if name.split(".")[1] == kind]
        if texts:
            found[kind.capitalize()] = [f"- {' '.join(text.split())}" for text in texts]
    return found


def released(changelog: str, version: str, date: str, fragments: Mapping[str, str]) -> str:
    """The changelog with a release on top: its own unreleased section, if there is one, and the fragments.

    Raises:
        ValueError: there is nothing to release.
    """
    unreleased = re.compile(
        rf"^## {re.escape(version)} \(unreleased\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
    )
    written = unreleased.search(changelog)
    if written is None and not fragments:
        raise ValueError(f"there is nothing to release: neither a fragment nor '## {version} (unreleased)'")
    intro, *parts = re.split(r"^### ", written[1] if written else "", flags=re.MULTILINE)
    sections = {title: body.strip() for title, _, body in (part.partition("\n") for part in parts)}
    for kind, lines in entries(fragments).items():
        sections[kind] = "\n".join([*filter(None, [sections.get(kind, "")]), *lines])
    new = [f"## {version} - {date}", *filter(None, [intro.strip()])]
    new += [f"### {title}\n\n{body}" for title, body in sections.items()]
    separator = "\n\n"
    head, first, rest = unreleased.sub("", changelog).partition("\n## ")
    return f"{head.rstrip()}\n\n{separator.join(new)}\n" + (f"\n## {rest}" if first else "")


def notes(changelog: str, version: str) -> str | None:
    """What the changelog says about a release, without its heading; None if it has no such release."""
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
    fragments = {path.name: path.read_text(encoding="utf-8") for path in paths}
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    try:
        new = released(text, version, date, fragments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    changelog.write_text(new, encoding="utf-8")
    for path in paths:
        path.unlink()
    print(f"CHANGELOG.md: {version}, {len(paths)} changes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
