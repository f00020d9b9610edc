"""
The programs in the containers of the demo and the tests. They know nothing of shares.
"""
