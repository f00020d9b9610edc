"""
The soak: an embedded cluster under load and under faults that come together, for as long as wanted.

`campaign` lets rounds of faults pass, each with a calm after it. `load` and `faults` draw from the seed, `calm` and
`usage` judge, `cluster` is what all of it happens to. Must never call a service's code, except to plant a defect in it.
"""
