"""
Tests of the matrix of versions and of what a run finds.
"""
