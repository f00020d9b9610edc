"""
The region file, `*.cache`, which the library in the containers and the monitor on the Node both map.

`layout` says where each build of the library keeps what, `codec` reads and writes the values, `sums` adds up the
processes, `records` reads what this project's library adds.
"""
