"""
The commands of the documentation, and a reader who runs them.

`commands` finds them in a page, `reader` runs them on a real cluster. May import `harness` and its `clusters`. Must
never change a command.
"""
