"""
What the monitor decides: functions from frozen values to frozen values.

`containers` decides the owners of directories and which to delete, `usage` what a region means, `feedback` what is
written into it, `pods` what a Pod was granted, `host` what the driver says, `observation` what a scrape shows.
May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
