"""
Tests of the draws and of the bounds of the soak.
"""
