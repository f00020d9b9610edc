"""
The base class of every error that this project raises on purpose.

A subclass has its facts as fields. Its `str()` is one sentence that a person can act on.
"""


class HamiError(Exception):
    """Something is wrong, and the message says what, where and what would be right."""
