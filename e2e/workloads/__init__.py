"""
What runs in the containers of the demo and the tests: ordinary programs that know nothing of shares.
"""
