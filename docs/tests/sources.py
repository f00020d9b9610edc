"""
Collect what exists in the code: texts, options of the library, values of the chart.

Reads source files without importing them. Neighbours: `pages` parses the claims, `test_docs` compares.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from .pages import ROOT

GAP = "…"
"""Stands for a placeholder in a text."""
PYTHON = (*ROOT.glob("services/*/src"), ROOT / "libs/hamicommon/src", ROOT / "tools")
NATIVE = ROOT / "native/hami-core"
CHART = ROOT / "charts/hami"


@cache
def texts() -> frozenset[str]:
    """Return every string in the Python sources except docstrings, with GAP for each placeholder."""
    return frozenset(
        text
        for folder in PYTHON
        for path in folder.rglob("*.py")
        if "_proto" not in path.parts
        for text in _texts(ast.parse(path.read_text()))
    )


@cache
def native_text() -> str:
    """Return the library's sources and tables as one text."""
    files = [*NATIVE.glob("*.def"), *NATIVE.glob("src/**/*.[ch]")]
    return "\n".join(path.read_text() for path in files)


@cache
def chart_values() -> frozenset[str]:
    """Return the dotted path of each value that the chart accepts, by our names and HAMi's."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    aliases = yaml.safe_load((CHART / "aliases.yaml").read_text())
    rejected = {name for row in aliases.pop("foreign") for name in row["names"]}
    return frozenset(_paths(schema)) - rejected | {name for kind in aliases.values() for name in kind}


@cache
def alerts() -> frozenset[str]:
    """Return the names of the chart's alerts."""
    groups = yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]
    return frozenset(rule["alert"] for group in groups for rule in group["rules"])


@cache
def chart_text() -> str:
    """Return the chart's templates, and its values for platforms, as one text."""
    files = [*(CHART / "templates").rglob("*.*"), *CHART.glob("platforms/*.yaml")]
    return "\n".join(path.read_text() for path in files)


def is_said(text: str) -> bool:
    """Say whether *text*, with GAP for placeholders, is part of a string in the sources."""
    return any(text in known for known in texts())


def is_metric(name: str) -> bool:
    """Say whether a service exports the metric *name*. Counters are declared without `_total`."""
    spellings = {name, name.removesuffix("_total")}
    return any(spelling in texts() for spelling in spellings) or any(
        re.fullmatch(re.escape(known).replace(GAP, "[a-z]+"), spelling)
        for known in texts()
        if GAP in known and known.startswith("hami_")
        for spelling in spellings
    )


def _texts(tree: ast.AST) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _paths(schema: dict[str, Any], within: str = "", definitions: dict[str, Any] | None = None) -> Iterator[str]:
    definitions = definitions or schema.get("definitions", {})
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    for key, value in schema.get("properties", {}).items():
        yield f"{within}{key}"
        yield from _paths(value, f"{within}{key}.", definitions)
