"""
What runs beside the calls: the feed of the cluster, the Lease, readiness, and periodic jobs.

May import `serve.kube`, `serve.context` and every room below `serve`. Must never answer a call.
"""
