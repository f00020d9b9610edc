"""
Benchmarks of the services. Each module here is a command, and the sub-packages serve them.

Arrows: commands → `report` → `load` → `record`. Must never assert a speed: a benchmark prints figures.
"""
