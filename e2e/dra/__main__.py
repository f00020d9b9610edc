"""
Write the table of docs/dra-nodes.md: `python -m dra`.
"""

from dra.page import PAGE, with_table

PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
