"""
The API server: the scheduler's requests, its watches, and the encodings of Pods.

May import `bind`, `errors`, `serve.call_priority` and `values`. Must never decide anything.
"""
