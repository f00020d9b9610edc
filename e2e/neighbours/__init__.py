"""
Programs of others that run beside the services: which versions, how they start, the page of what works.

`programs` has the pins, `charts` installs a program by its own chart, one module a program has what its tests need, and
`page` writes docs/neighbours.md.
Must never change how a cluster of the harness works.
"""
