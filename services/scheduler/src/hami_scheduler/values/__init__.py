"""
What is asked, offered and granted: frozen values, and the arithmetic on them.

May import `hamicommon` outside `hamicommon.runtime`. Must never know the cluster, a clock, a log or a client.
"""
