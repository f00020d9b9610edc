"""
README.md's table of options equals `options.def`.
"""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]

ROW = re.compile(r"^OPTION\((\w+), (\w+), \w+, [^,]+,(.*?)\)$", re.M | re.S)


def test_readme_lists_every_option() -> None:
    """
    One line for each row, in the order of the file: variable, grammar, default, what a bad value does, effect.
    """
    rows = ROW.findall((SOURCE / "options.def").read_text().split("*/", 1)[1])
    expected = []
    for _, variable, rest in rows:
        grammar, default, bad, effect = ("".join(re.findall(r'"([^"]*)"', text)) for text in re.split(r'(?<="),', rest))
        expected.append(f"| `{variable}` | {grammar} | {default} | {bad} | {effect} |")
    section = (SOURCE / "README.md").read_text().split("## Options", 1)[1].split("\n## ", 1)[0]
    listed = [line for line in section.splitlines() if line.startswith("| `")]

    assert len(expected) > 5
    assert expected == listed
