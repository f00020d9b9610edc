"""
What is decided on a Node whose devices are served by dynamic resource allocation: grants by claims, and their ledger.

`grant` makes a grant of a claim's allocation, `users` checks the containers that use it, `ledger` refuses what the
devices do not have. `instances` says what grants have of GPUs with MIG, `tokens` what
claims for resources stand for. `offer` makes the Node's ResourceSlices.
May import `allocate`, `health` and `mig`.
"""
