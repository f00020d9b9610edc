"""
Requests and answers: paths and query parameters, verbs, subresources, lists, faults for tests.

May import every other room; only `main` imports this one. Only `http` knows aiohttp.
"""
