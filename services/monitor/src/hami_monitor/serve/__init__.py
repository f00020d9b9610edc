"""
What the monitor does: the loops that read through adapters, decide, and write.

May import `adapters`, `metrics`, `decide` and settings. Must never import a client library.
"""
