"""Commands of a document run as written; only documented variables may differ."""

from pathlib import Path

import pytest

from harness.documents.commands import Document, DocumentError, unmarked

from .pages import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
"""The pages whose commands are all run, or say why not."""

TEXT = """
# A page

<!-- run: variables -->
```sh
export CHART=charts/hami   # where the chart is
export REGISTRY=registry.example.com
```

Prose, and a block that nobody promised:

```sh
rm -rf "$CHART"
```

<!-- run: greet -->
```sh
echo "chart $CHART"
echo "from ${REGISTRY}"
```

<!-- run: fail -->
```sh
false
echo "never reached $CHART"
```
"""


def page(folder: Path, text: str = TEXT) -> Document:
    """Return a document of *text*."""
    path = folder / "page.md"
    path.write_text(text)
    return Document(path)


def test_only_marked_blocks_are_commands(tmp_path: Path) -> None:
    """Blocks without a mark are not run."""
    assert ["variables", "greet", "fail"] == list(page(tmp_path).blocks)


def test_command_runs_with_the_values_of_the_document(tmp_path: Path) -> None:
    """The documented variables are exported."""
    assert "chart charts/hami\nfrom registry.example.com\n" == page(tmp_path).run("greet", folder=tmp_path)


def test_documented_variable_can_be_given_another_value(tmp_path: Path) -> None:
    """A reader has another registry."""
    assert "from here\n" in page(tmp_path).run("greet", {"REGISTRY": "here"}, folder=tmp_path)


def test_variable_that_is_not_documented_cannot_be_given(tmp_path: Path) -> None:
    """A test cannot use a variable that readers do not know."""
    with pytest.raises(DocumentError, match="unknown variable TAG; known are"):
        page(tmp_path).run("greet", {"TAG": "1"}, folder=tmp_path)


def test_failing_command_stops_the_block_and_is_shown(tmp_path: Path) -> None:
    """The error names the block and its line, and contains the output."""
    with pytest.raises(DocumentError, match=r"page\.md:\d+: fail exited with 1") as caught:
        page(tmp_path).run("fail", folder=tmp_path)

    assert "never reached charts/hami" not in str(caught.value)


def test_command_that_goes_on_is_interrupted_after_its_first_line(tmp_path: Path) -> None:
    """As a reader does with Ctrl-C; it must end well."""
    text = "<!-- run: serve -->\n```sh\npython3 -c '{}'\n```\n"
    serves = "import signal, time; signal.signal(2, lambda *_: exit(0)); print(1, flush=True); time.sleep(60)"

    assert "1\n" == page(tmp_path, text.format(serves)).begin("serve", {}, folder=tmp_path)
    with pytest.raises(DocumentError, match="printed '' and exited with 0"):
        page(tmp_path, text.format("pass")).begin("serve", {}, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("<!-- run: a -->\n\nprose\n", "no sh block follows", id="mark above prose"),
        pytest.param("<!-- run: a -->\n```yaml\na: 1\n```\n", "no sh block follows", id="mark above another language"),
        pytest.param("text\n\n<!-- run: a -->\n", "no sh block follows", id="mark at the end"),
        pytest.param("<!-- run: a -->\n```sh\n:\n```\n<!-- run: a -->\n```sh\n:\n```\n", "second block", id="twice"),
        pytest.param("<!-- run: a -->\n```sh\nls $HERE\n```\n", "does not export HERE", id="variable nobody exports"),
        pytest.param("<!-- run: variables -->\n```sh\ncd /\n```\n", "is not export NAME=value", id="no export"),
    ],
)
def test_page_with_a_misplaced_mark_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Parsing the page finds a misplaced mark, on every machine."""
    with pytest.raises(DocumentError, match=message):
        page(tmp_path, text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_is_run_or_says_why_not(path: Path) -> None:
    """A command that nobody runs is soon wrong."""
    assert [] == unmarked(path)


@pytest.mark.parametrize(
    ("block", "found"),
    [
        pytest.param("<!-- run: a -->\n```sh\nls\n```\n", "", id="run"),
        pytest.param("<!-- not run: no cluster -->\n```sh\nls\n```\n", "", id="not run"),
        pytest.param("```text\nNODE\n```\n", "", id="output"),
        pytest.param("```sh\nls\n```\n", "is not marked", id="no mark"),
        pytest.param("<!-- not run: -->\n```sh\nls\n```\n", "is not marked", id="no reason"),
        pytest.param("<!-- run: a -->\n\nprose\n\n```sh\nls\n```\n", "is not marked", id="mark elsewhere"),
        pytest.param("```\nls\n```\n", "has no language", id="no language"),
    ],
)
def test_block_without_a_mark_is_found(tmp_path: Path, block: str, found: str) -> None:
    """Output has a language of its own, so that commands cannot pass for it."""
    path = tmp_path / "page.md"
    path.write_text(block)

    assert ([found] if found else []) == [found for place in unmarked(path) if found in place]


def test_readme_decodes_an_annotation_as_it_shows() -> None:
    """The block below the command is its output."""
    page = Document(ROOT / "README.md")
    shown = page.path.read_text().partition(page.blocks["decode"].text)[2].split("```")[2]

    assert shown.removeprefix("text\n") == page.run("decode", folder=ROOT)
