"""Additions to MkDocs for the site of docs/: more pages, folders in the nav, drawings.

Documents link to each other, and to programs and tests, with paths that GitHub follows. On the site, a link
that leaves docs/ leads to a page made from that file, so the site is complete without GitHub. This runs in
the environment of the site, which has MkDocs but not Millstream.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "changes/README.md": "project/changes.md",
}
"""Documents outside docs/, and their paths in the site."""

FENCES = re.compile(r"(^ *```.*?^ *```$|^(?: {4}[^\n]*\n)+|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
"""Code, in which nothing is a link."""
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
LIST = re.compile(r"^((?![-*|>#<\d ]).*\S)\n(?=[-*] |1\. )", re.MULTILINE)
"""A list below a line of text. GitHub sees a list; Python's Markdown needs an empty line before it."""
LANGUAGES = {
    ".py": "python",
    ".java": "java",
    ".toml": "toml",
    ".json": "json",
    ".sh": "bash",
    ".yml": "yaml",
}

BOOSTS: dict[str, float] = {
    "troubleshooting.md": 8,  # has the messages that people paste
    "how-to/": 3,
    "index.md": 0.5,  # names everything and explains nothing
    "features.md": 0.5,
    "migrating.md": 0.5,
    "porting.md": 0.5,
    "reference/": 0.1,
    "differences.md": 0.1,
    "kips.md": 0.1,
    "project/": 0.05,
    "decisions/": 0.05,
}
"""The search weight of a page, by the page or its folder; other pages have `BOOST`.

Explanations rank above lists, and both above what only contributors read. The weights are here because GitHub
would show a page's front matter as a table."""
BOOST = 2

shown: dict[str, str] = {}
"""The pages that show files to which a document links, by file."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in its place in the nav."""
    config.nav = _with_folders(config.nav, Path(config.docs_dir))
    return config


def _with_folders(entry: Any, docs: Path) -> Any:
    """An entry of the nav, with lists of pages where it has folders; without folders that have no page."""
    if isinstance(entry, list):
        return [each for each in (_with_folders(each, docs) for each in entry) if each]
    if isinstance(entry, dict):
        [(title, inner)] = entry.items()
        filled = _with_folders(inner, docs)
        return {title: filled} if filled else None
    if isinstance(entry, str) and entry.endswith("/"):
        return pages_of(docs, entry.rstrip("/"))
    return entry


def pages_of(docs: Path, folder: str) -> list[str]:
    """The pages of a folder: its index, those that the index links to in their order, then the others."""
    there = sorted(path.relative_to(docs).as_posix() for path in (docs / folder).rglob("*.md"))
    index = [name for name in there if name in (f"{folder}/README.md", f"{folder}/index.md")]
    linked: list[str] = []
    for name in index:
        text = (docs / name).read_text(encoding="utf-8")
        linked += [posixpath.normpath(posixpath.join(folder, target)) for target, _ in LINK.findall(text)]
    return list(dict.fromkeys([*index, *(name for name in linked if name in there), *there]))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents from outside docs/, and each file that a document links to."""
    shown.clear()
    documents = [ROOT / path for path in PAGES] + [
        Path(file.abs_src_path) for file in files if file.src_uri.endswith(".md") and file.abs_src_path
    ]
    for path in documents:
        here = path.relative_to(ROOT).as_posix()
        for part in FENCES.split(path.read_text(encoding="utf-8"))[::2]:
            for target, _ in LINK.findall(part):
                place = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
                if _uri(place, files) is None and "://" not in target and (ROOT / place).exists():
                    shown[place] = f"files/{place}.md"
    aside = InclusionLevel.NOT_IN_NAV
    for path, uri in PAGES.items():
        level = aside if path == "changes/README.md" else InclusionLevel.UNDEFINED
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path), inclusion=level))
    for place, uri in shown.items():
        files.append(File.generated(config, uri, content=_page_of(place), inclusion=aside))
    return files


def _page_of(place: str) -> str:
    """A page that shows a file, or lists a folder; excluded from the search."""
    path = ROOT / place
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# {place}\n\n"
    if path.is_dir():
        return head + "\n".join(
            f"- `{each.name}`" for each in sorted(path.iterdir()) if each.name[0] not in "._"
        )
    language = LANGUAGES.get(path.suffix, "text")
    return f"{head}````````{language}\n{path.read_text(encoding='utf-8')}\n````````\n"


def _uri(place: str, files: Files) -> str | None:
    """The path in the site of a path of the project; None if the site does not have it."""
    if place in PAGES:
        return PAGES[place]
    inside = place.removeprefix("docs/")
    if inside == place:
        return shown.get(place)
    for uri in (inside, f"{inside}/README.md", f"{inside}/index.md"):
        if files.get_file_from_path(uri) is not None:
            return uri
    return shown.get(place)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn paths of the project into paths of the site, and set the page's weight in the search."""
    here = next(
        (path for path, uri in PAGES.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}"
    )

    def moved(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        uri = None if "://" in target else _uri(place, files)
        if uri is None:
            return link[0]  # elsewhere; or missing, which MkDocs reports
        return f"]({os.path.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    page.meta.setdefault("search", {"boost": boost_of(page.file.src_uri)})
    parts = FENCES.split(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return LIST.sub(r"\1\n\n", "".join(parts))


def boost_of(uri: str) -> float:
    """The weight of a page in the search."""
    return BOOSTS.get(uri) or BOOSTS.get(uri.partition("/")[0] + "/", BOOST)


ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Fail the build if a page would load something from another host."""
    for path in Path(config.site_dir).rglob("*.html"):
        found = ELSEWHERE.search(path.read_text(encoding="utf-8"))
        if found is not None:
            raise PluginError(f"{path.name} loads something from another host: {found[0]}")


DRAWING = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)" ?/?>')


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page itself, so that they follow its switch between dark and light."""

    def inline(image: re.Match[str]) -> str:
        folder = posixpath.dirname(page.file.dest_uri)
        path = Path(config.docs_dir, posixpath.normpath(posixpath.join(folder, image[2])))
        drawing = path.read_text(encoding="utf-8")
        style = re.search(r"<style>(.*?)</style>\n?", drawing, re.DOTALL)
        return f'<span class="drawing">{drawing.replace(style[0], "") if style else drawing}</span>'

    # In a table, GitHub removes the backslash before a pipe, even in code; Python's Markdown keeps it.
    html = re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html)
    return DRAWING.sub(inline, html)
