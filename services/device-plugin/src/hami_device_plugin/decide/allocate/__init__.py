"""
What a container gets: whose the replicas are, what its Pod was granted, and what that is on this Node.

`pods` reads a Pod's grant and marks the Pod. `owner` and `pending` find the container of a call, `capacity` refuses a
start. `allocation` and `container_limits` turn shares into a grant, and `cdi` writes it as a spec.
May import `probe`, `replicas` and `inventory`. Must never import an adapter, a client library, a clock or a log.
"""
