"""
Choose the pages of the site from the files that git tracks, and their order from `docs/README.md`.

Every Markdown file is a page at its own path, so a link works in the repository and on the site. A link to a source
file leads to a page that shows it; a link to a folder leads to its README, else to a list of its files. Must never
change a text. MkDocs calls the functions that begin with `on_`, mkdocs.yml.
"""

import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
CONTENTS = "docs/README.md"
PICTURES = (".svg", ".webp")
RECORDS = ("docs/decisions/README.md", "docs/decisions/")
EXAMPLES = ("examples/README.md", "examples/")
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)]*)?(\))")
_LIST = re.compile(
    r"(?P<before>^(?!(?:[-*]|\d+\.) |[ \t|#>]|```).+\n|(?<=\n\n)(?: +\S.*\n)+)(?=[ \t]*(?:-|\d+\.) )", re.MULTILINE
)
"""The end of a paragraph on which a list, or the next item of one, follows without an empty line."""
_FENCE = re.compile(r"(^[ \t]*(`{3,}).*?^[ \t]*\2[ \t]*$)", re.MULTILINE | re.DOTALL)
_SLUG = re.compile(r"[^\w\- ]")
_LANGUAGES = {".c": "c", ".def": "c", ".go": "go", ".h": "c", ".py": "python", ".sh": "sh", ".yaml": "yaml"}


def tracked() -> list[str]:
    """Return the paths of all files in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path and (ROOT / path).is_file()]


TRACKED = frozenset(tracked())


def page_of(path: str) -> str | None:
    """Return the page that shows the file or folder *path*, None if there is no such file."""
    if path.endswith((".md", *PICTURES)):
        return path if path in TRACKED else None
    if path in TRACKED:
        return f"{path}.md"
    if f"{path}/README.md" in TRACKED:
        return f"{path}/README.md"
    return f"{path}/index.md" if any(_inside(path)) else None


def _inside(folder: str) -> Iterator[str]:
    return (path for path in sorted(TRACKED) if path.startswith(f"{folder}/"))


def targets(page: str, markdown: str) -> Iterator[str]:
    """Yield the files and folders of the repository that *markdown*, the text of *page*, links to."""
    for link in _LINK.finditer(markdown):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))


def slug(heading: str, _: str = "") -> str:
    """
    Return the anchor of *heading* that GitHub gives it.

    >>> slug("What is `kubectl hami`?")
    'what-is-kubectl-hami'
    """
    return _SLUG.sub("", heading.strip().lower().replace("`", "")).replace(" ", "-")


def navigation() -> list[Any]:
    """Return the home page, a section for each task in `docs/README.md`, and all examples."""
    sections: dict[str, list[str]] = {}
    title = ""
    for row in re.findall(r"^\| *(.*?) *\| (.*) \|$", (ROOT / CONTENTS).read_text(), re.MULTILINE)[1:]:
        title = row[0].strip("*") or title
        pages = (page_of(path) for path in targets(CONTENTS, row[1]))
        sections.setdefault(title, []).extend(page for page in pages if page)
    shown = [{name: [_with_its_folder(page) for page in pages]} for name, pages in sections.items()]
    return ["README.md", *shown, "CODE_OF_CONDUCT.md"]


def _with_its_folder(page: str) -> Any:
    """Return the pages of a folder whose overview is *page*, else the page itself."""
    for overview, folder in (RECORDS, EXAMPLES):
        if page == overview:
            return {
                folder.split("/")[-2].capitalize(): [
                    page,
                    *(p for p in _inside(folder[:-1]) if p.endswith(".md") and p != page),
                ]
            }
    return page


class IndentedByTwo(Extension):  # type: ignore[misc]
    """Reads nested lists as GitHub does."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Set how far a nested list is indented at least."""
        md.tab_length = 2


def with_lists(markdown: str) -> str:
    r"""
    Return *markdown* with an empty line before each list, which GitHub does without.

    >>> with_lists("So:\n- one\n- two\n")
    'So:\n\n- one\n- two\n'
    """
    parts = _FENCE.split(markdown)
    # The pattern has two groups: text, a fenced block, its fence, text, and so on.
    return "".join(
        _LIST.sub(r"\g<before>\n", part) if n % 3 == 0 else part for n, part in enumerate(parts) if n % 3 < 2
    )


def on_config(config: Any) -> Any:
    """Set the order of the pages, and the anchors of headings."""
    config.nav = navigation()
    config.markdown_extensions.append(IndentedByTwo())
    config.mdx_configs.setdefault("toc", {}).update(slugify=slug, permalink=True)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Return every Markdown file, every picture, a page for all else that these link to, and the theme's files."""
    files = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in sorted(TRACKED):
        if (path.endswith(".md") and not path.startswith((".github/", "changelog.d/"))) or path.endswith(PICTURES):
            files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for page in [file.src_uri for file in files if file.src_uri.endswith(".md")]:
        for path in targets(page, (ROOT / page).read_text()):
            shown = page_of(path)
            if shown and files.get_file_from_path(shown) is None:
                content = source_page(path) if path in TRACKED else folder_page(path)
                files.append(File.generated(config, shown, content=content))
    return files


def source_page(path: str) -> str:
    """Return a page that shows the file *path*, without a place in the search."""
    text = (ROOT / path).read_text()
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return (
        f"---\nsearch: {{exclude: true}}\n---\n# {Path(path).name}\n\n`{path}`\n\n{fence}{language}\n{text}\n{fence}\n"
    )


def folder_page(path: str) -> str:
    """Return a page that lists the files in the folder *path*."""
    names = "\n".join(f"- `{file}`" for file in _inside(path))
    return f"---\nsearch: {{exclude: true}}\n---\n# {Path(path).name}\n\n{names}\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text with links to the pages that show files and folders; a page made here has none."""
    if page.file.src_uri not in TRACKED:
        return markdown
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        shown = page_of(posixpath.normpath(posixpath.join(here, link[2])))
        return f"{link[1]}{posixpath.relpath(shown, here or '.')}{link[3] or ''}{link[4]}" if shown else link[0]

    return with_lists(_LINK.sub(led, markdown))
