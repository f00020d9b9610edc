"""
What happens to cards: which are faulty, why, and when each is healthy again.

`xids` says which XIDs count, `faults` has the rule of each cause, `condition` applies the rules to one card, `record`
keeps faults in the Node's annotation, and `missing` keeps cards that cannot be read in the inventory.
May import `decide.inventory` and `hamicommon`. Must never read a clock, NVML or the API: time and readings are
arguments.
"""
