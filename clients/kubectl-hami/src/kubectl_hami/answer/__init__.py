"""
Answers: pure functions from what was read to what people ask.

May import `values` and `hamicommon`. Must never read a cluster, a file or a clock, nor print. What a tenant can write
(annotations) and what a monitor says costs time in proportion to its size, and a bad part of it one sentence.
"""
