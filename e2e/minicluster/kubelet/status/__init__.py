"""
The kubelet's reports: Pod status, Node status and heartbeats, Events.

May import `podspec`. Must never start, stop or allocate anything.
"""
