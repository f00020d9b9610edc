"""
The output of figures: command line, tables, pages of the documentation.

May import `record`, and `load` for its types. Must never measure.
"""
