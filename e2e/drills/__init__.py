"""
Drills: programs that try to leave their share, and what is promised where the library or the driver holds it.

`promises` has the words, `container` runs a program in a container of each kind, `watchdog` asks the monitor's code
about it, `table` is the page's table. A test here is a row of SECURITY.md. May import `harness`, `testbed`, the
clusters and the monitor's decisions.
"""
