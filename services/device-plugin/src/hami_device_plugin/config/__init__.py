"""
The device plugin's settings: from flags, environment, device config, named config and this Node's overrides.

`arguments` has the flags, `ignored` those without effect, `named` the config that a Node's label chooses. `loader`
reads every source, `settings` is the result.
May import `decide`, for the values that settings become. Must never read a file, a clock or the environment itself.
"""
