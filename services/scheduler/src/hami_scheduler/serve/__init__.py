"""
The service: kube-scheduler's calls, the API server, and everything that waits, retries or counts.

May import every other room. Must never own a rule about devices: it asks `search`.
"""
