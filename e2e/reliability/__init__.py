"""
The page of reliability: what the campaigns did, for how long, from which seeds, and what they found.
"""
