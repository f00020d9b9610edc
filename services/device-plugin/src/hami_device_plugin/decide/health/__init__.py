"""
Which devices are faulty, why, and when each is healthy again.

`xids` says which XIDs count, `faults` has the rule of each cause, `condition` applies the rules to one device, `record`
keeps faults in the Node's annotation, and `lost_replicas` says which replicas a faulty device takes with it.
May import `allocate`, `replicas`, `inventory` and `hamicommon`. Must never read a clock, NVML or the API: time and
readings are arguments.
"""
