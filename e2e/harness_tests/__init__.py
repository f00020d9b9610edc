"""
Tests of what the test clusters stand on.
"""
