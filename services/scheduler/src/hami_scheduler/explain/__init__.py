"""
Decisions in words: for the log, for Events, and for people who ask.

May import `search`, `state`, `rules` and `values`. Must never decide anything itself, and never write a number into
`FailedNodes`: kube-scheduler retries whenever that text changes.
"""
