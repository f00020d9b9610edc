"""
Who may write what?
"""
