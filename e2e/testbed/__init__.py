"""
What every test cluster stands on: processes, folders, ports, fake devices, Debian packages, waiting.

May import `minicluster.pids`. Must never know which cluster or service it serves.
"""
