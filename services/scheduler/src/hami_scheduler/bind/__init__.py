"""
What concerns a Binding: what it says, which Node locks it needs, and what became of one without an answer.

`plan` and `node_lock` decide and are pure; `locking` and `fences` write by them through the API server. May import
`state` and `values`. Must never choose devices.
"""
