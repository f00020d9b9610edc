"""
The commands: each reads, asks for an answer, and shows it.

`options` has what all of them take, `frame` the exit codes. Must never conclude anything itself.
"""
