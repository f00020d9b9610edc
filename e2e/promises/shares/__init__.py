"""
What does a container get?
"""
