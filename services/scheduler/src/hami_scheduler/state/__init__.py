"""
What is known of the cluster: Nodes, grants, quotas and reservations, kept current by the API server's events.

The only room with values that change. May import `rules` and `values`. Must never decide, read a clock, log or call a
client: time and objects come as arguments.
"""
