"""
The tests of `fuzz`.
"""
