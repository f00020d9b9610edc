"""
Run a service: its flags, its settings, its log and its end.

`process` handles signals and exit codes, `logs` the log, `garbage` garbage collection. `flags` and `hami_flags` read
the command line, and `device_config` reads HAMi's YAML again when it changes.
`shared_read` reads once for many callers.
May import `hamicommon.config.device_config` and `hamicommon.errors`. Must never import another room.
"""
