"""
What the monitor exports: names, labels and values of every metric.

`families` has HAMi's, `status` the monitor's own, `collector` answers a scrape with both.
May import `decide` and prometheus_client. Must never read a file, ask the driver or decide what is shown.
"""
