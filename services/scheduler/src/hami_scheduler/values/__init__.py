"""
What is asked, offered and granted: frozen values, and their reading from objects of the API server.

May import `hamicommon` outside `hamicommon.runtime`. Must never know the cluster, a clock, a log or a client.
"""
