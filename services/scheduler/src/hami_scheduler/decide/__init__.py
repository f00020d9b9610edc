"""
Decisions: which Node, which devices, who must leave, what a bind writes.

May import `state` and `values`. Must never change the state it reads, keep a reference to it, read a clock, log or call
a client.
"""
