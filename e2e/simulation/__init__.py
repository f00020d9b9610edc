"""
Thousands of leader changes in minutes: real schedulers over a simulated API server and network, in virtual time.
"""
