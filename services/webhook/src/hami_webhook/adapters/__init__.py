"""
What the webhook reads and answers: one module for each part of the outside world.

`http` answers the API server's requests, `kube` watches its objects.
May import `decide` and settings. Must never decide, and must never import `serve` or one another.
"""
