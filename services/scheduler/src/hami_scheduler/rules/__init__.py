"""
The rules about devices: what fits, what is better, and what differs for a vendor. Pure functions of values.

May import `values`. Must never know the cluster, a clock, a log or a client.
"""
