"""
The device plugin's settings: from flags, environment, device config and this Node's overrides.

`arguments` has the flags, `ignored` those without effect, `loader` reads every source, `settings` is the result.
May import `decide`, for the values that settings become. Must never read a file, a clock or the environment itself.
"""
