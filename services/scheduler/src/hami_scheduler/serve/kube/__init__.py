"""
The API server: the scheduler's requests, its watches, and the encodings of Pods.

May import `serve.errors`, `serve.call_priority`, `serve.locking`, `decide` and `values`. Must never decide anything.
"""
