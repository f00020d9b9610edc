"""
Tests of the kill points, and of how a process dies at one.
"""
