"""
Which Node gets a Pod, when, and at what cost?
"""
