"""
The commands: each reads, asks for an answer, and shows it.

`options` has what all of them take, `command_line` the exit codes. Must never conclude anything itself.
"""
