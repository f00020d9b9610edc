"""
What survives the end of a part, a card or a Node?
"""
