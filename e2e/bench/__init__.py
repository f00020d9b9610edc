"""
Benchmarks of the services: each module here is a command, each room serves them.

Arrows: commands → `report` → `load` → `record`. Must never assert how fast something is: a benchmark prints figures.
"""
