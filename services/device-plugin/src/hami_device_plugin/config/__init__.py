"""
The device plugin's settings: from flags, environment, device config, named config and this Node's overrides.

`settings` has the flags and the result, `ignored` the flags without effect, `named` the config that a Node's label
chooses, `time_slicing` the replicas of NVIDIA's plugin. `loader` reads every source.
May import `decide`, for the values that settings become. Must never read a file, a clock or the environment itself.
"""
