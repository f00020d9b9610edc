"""
What the monitor exports: names, labels and values of every metric.

`families` has HAMi's, `device_families` ours for devices and shares, `account_families` ours for device time, `status`
those of the monitor itself, and `collector` answers a scrape with all.
May import `decide` and prometheus_client. Must never read a file, ask the driver or decide what is shown.
"""
