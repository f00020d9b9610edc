"""
What makes an object of each kind valid and complete.

Functions of the object. May import `api`; must never look at other objects or at the store.
"""
