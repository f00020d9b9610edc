"""
Where figures go: the command line, tables, pages of the documentation.

May import `load` for the types of what was measured, and `record`. Must never measure.
"""
