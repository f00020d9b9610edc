"""
The real cluster comes up, serves, and leaves nothing behind.
"""
