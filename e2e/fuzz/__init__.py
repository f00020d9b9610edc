"""
Coverage-guided fuzzing: inputs that nobody wrote, for every reader of what others write.

`targets` has what is called with an input and what must hold then, one module for each target; the C targets are in
`native`. `__main__` runs them, `one` is the process of a Python target. May import the services, `minicluster` and
`testbed`; nothing imports it.
"""
