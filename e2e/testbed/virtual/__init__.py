"""
What services run on in virtual time: an event loop with processes, an API server in memory, a config without a file.
"""
