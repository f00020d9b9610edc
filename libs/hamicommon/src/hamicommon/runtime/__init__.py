"""
How a service lives: API client and reflector, HTTP server, process, logs, flags. Only services import this.
"""
