"""
Which Node and which devices a Pod gets, and which Pods it needs to leave.

May import `state`, `rules` and `values`. Must never change the state it reads, keep a reference to it, read a clock,
log or call a client. Only `cache` remembers anything.
"""
