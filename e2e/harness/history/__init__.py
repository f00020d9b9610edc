"""
The recorded history of a cluster, and the judge of it.

A history is every version of every Pod, Node and ResourceQuota in the API server's order, of ResourceClaims and
ResourceSlices where there are such, and what each container was seen to have. `recorder` writes it while tests run.
`judge` replays it and says which rule is broken at which version. `python -m harness.history FILE` does so for a file.

Apart from `recorder` these modules are functions of a history: they use `hamicommon` only, know no cluster and no
clock, and read no service's code. The cost of an event does not grow with the length of the history.
"""
