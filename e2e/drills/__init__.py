"""
Drills: programs that try to leave their share, and what is promised where the library or the driver holds it.

`promises` has the words, `container` runs a program in a container of each kind, `table` is the page's table. A test
here is a row of SECURITY.md. May import `harness`, `testbed` and the clusters.
"""
