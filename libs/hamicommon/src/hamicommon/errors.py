"""
The root of every error this project raises on purpose.

A subclass carries its facts as fields; `str()` of it is one sentence a person can act on.
"""


class HamiError(Exception):
    """Something is wrong, and the message says what, where and what would be right."""
