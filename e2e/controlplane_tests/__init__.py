"""
Tests of the real cluster: it starts, serves, and leaves nothing behind.
"""
