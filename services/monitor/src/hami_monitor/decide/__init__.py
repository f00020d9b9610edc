"""
What the monitor decides: functions from frozen values to frozen values.

`containers` decides the owners of directories and which to delete, `pods` and `grants` what each container was granted,
`usage` what it uses, `feedback` what is written into its region, `host` what the driver says, and `observation` what a
scrape shows. `share_time` says how long a Pod holds its shares, and `accounts` adds that up.
May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
