"""
Version skew: every two versions of every two parts that talk, on an embedded cluster under load and faults.

`matrix` says which parts talk and plans the runs. `run` is one cluster whose parts are exchanged and rolled back.
`known` lists what releases are known to do wrong. Load, faults and calms are the soak's. Must never import a service.
"""
