"""A preprocessor of mdBook: adds the files of the repository that pages link to, as pages of the book.

On a code forge, `../bench/README.md` leads to the file. In the book it leads to nothing, because the book has only what
is below docs. So this program adds each such file below `repository/`, and those to which that file links, and changes
the links. Markdown becomes a page, another file a page with its source, a directory a list of its files, and a picture
a part of its page.

    mdbook build docs                    # runs it
    python3 docs/outside.py check        # makes the pages without mdBook; exit code 1 if a link of them is dead
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FIRST_PAGE = "quick-start.md"
LANGUAGES = {".rs": "rust,ignore", ".go": "go", ".java": "java", ".proto": "protobuf", ".py": "python", ".toml": "toml"}
# Code, which may look like a link, or the target of a link.
TOKEN = re.compile(r"^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$|`[^`\n]+`|\]\(([^()\s]+)\)", re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    return [match[2] for match in TOKEN.finditer(text) if match[2]]


def is_elsewhere(link: str) -> bool:
    return "://" in link or link.startswith(("#", "mailto:", "data:"))


def name_in_book(page: str) -> str:
    """The path of a page below docs. mdBook itself renames `README.md`, and the summary is no page."""
    if page == "SUMMARY.md":
        return FIRST_PAGE
    return re.sub(r"(^|/)README\.md$", r"\1index.md", page)


class Outside:
    """The pages to add, by their path in the book."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}

    def rewrite(self, text: str, page: str, directory: Path) -> str:
        """The text of `page`, whose links are relative to `directory`."""

        def replaced(match: re.Match[str]) -> str:
            link = match[2]
            return f"]({self.link(link, page, directory)})" if link and not is_elsewhere(link) else match[0]

        return TOKEN.sub(replaced, text)

    def link(self, link: str, page: str, directory: Path) -> str:
        path, mark, anchor = link.partition("#")
        target = (directory / path).resolve()
        if not target.exists():
            sys.exit(f"{page}: {link} leads nowhere")
        if target.is_relative_to(DOCS):
            name = name_in_book(target.relative_to(DOCS).as_posix())
        elif target.suffix == ".svg":
            return "data:image/svg+xml;base64," + base64.b64encode(target.read_bytes()).decode()
        else:
            name = self.add(target)
        return posixpath.relpath(name, posixpath.dirname(page) or ".") + mark + anchor

    def add(self, path: Path) -> str:
        """Adds the page of a file or directory, and those to which it links. Returns its path in the book."""
        inside = path.relative_to(ROOT).as_posix()
        page = f"repository/{inside}" if path.suffix == ".md" else f"repository/{inside}.md"
        if page in self.pages:
            return page
        self.pages[page] = ""  # It may link to itself.
        if path.suffix == ".md":
            self.pages[page] = self.rewrite(path.read_text(), page, path.parent)
        elif path.is_dir():
            files = [it for it in sorted(path.iterdir()) if it.suffix in {*LANGUAGES, ".md"} and it.is_file()]
            listed = "".join(f"- [{it.name}]({it.name})\n" for it in files)
            self.pages[page] = self.rewrite(f"# {inside}\n\n{listed}", page, path)
        else:
            self.pages[page] = f"# {inside}\n\n`````{LANGUAGES[path.suffix]}\n{path.read_text()}\n`````\n"
        return page

    def chapters(self) -> list[Any]:
        """The pages, as mdBook has chapters."""
        made: list[Any] = [{"PartTitle": "The repository"}]
        for page, content in sorted(self.pages.items()):
            name = page.removeprefix("repository/")
            name = name if (ROOT / name).is_file() else name.removesuffix(".md")
            chapter: dict[str, Any] = {"name": name, "content": content, "number": None, "sub_items": []}
            made.append({"Chapter": {**chapter, "path": page, "source_path": None, "parent_names": []}})
        return made


def preprocess(book: dict[str, Any]) -> None:
    items = book["items"] if "items" in book else book["sections"]
    outside = Outside()

    def visit(items: list[Any]) -> None:
        for item in items:
            chapter = item.get("Chapter") if isinstance(item, dict) else None
            if chapter and chapter["source_path"]:
                directory = (DOCS / chapter["source_path"]).parent
                chapter["content"] = outside.rewrite(chapter["content"], chapter["path"], directory)
                visit(chapter["sub_items"])

    visit(items)
    items += outside.chapters()


def anchors(text: str) -> set[str]:
    """The anchors of headings, as mdBook and forges make them."""
    prose = re.sub(r"^(```+).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def check() -> None:
    """Makes the pages of the book, and follows each of their links."""
    outside = Outside()
    included = re.compile(r"\{\{#include \.\./ARCHITECTURE\.md:glossary\}\}")
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("ANCHOR: glossary")[2].partition("<!-- ANCHOR_END")[0]
    pages = {}
    for link in links((DOCS / "SUMMARY.md").read_text()):
        text = included.sub(lambda _: glossary, (DOCS / link).read_text())
        page = name_in_book(link)
        pages[page] = outside.rewrite(text, page, (DOCS / link).parent)
    pages.update(outside.pages)
    dead = []
    followed = 0
    for page, text in pages.items():
        for link in links(text):
            if "://" in link or link.startswith("data:"):
                continue
            followed += 1
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            is_file = not target.startswith("..") and (DOCS / target).is_file() and not target.endswith(".md")
            if not is_file and (target not in pages or (anchor and anchor not in anchors(pages[target]))):
                dead.append(f"{page}: {link}")
    if dead:
        sys.exit("\n".join(dead))
    print(f"{len(pages)} pages, {followed} links")


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        check()
    elif sys.argv[1:2] != ["supports"]:
        _, book = json.load(sys.stdin)
        preprocess(book)
        json.dump(book, sys.stdout)
