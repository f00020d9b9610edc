"""
Run a Python program with one of its functions changed, as a careless author would.

`python -m testbed.launch.changed FUNCTION CHANGE PROGRAM ARGUMENTS...`: *CHANGE*, `module:name`, takes *FUNCTION*,
`module:name` or `module:class.name`, and returns what takes its place.
"""

import sys
from pkgutil import resolve_name

from testbed.launch import owner_and_name, run


def main() -> None:
    """Change the function, and run the program."""
    _, function, change, *program = sys.argv
    owner, name = owner_and_name(function)
    setattr(owner, name, resolve_name(change)(getattr(owner, name)))
    run(*program)


if __name__ == "__main__":
    main()
