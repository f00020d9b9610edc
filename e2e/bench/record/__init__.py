"""
What is recorded during a run, and the figures made of it.

May import nothing of the other rooms. Must never start a process or send a request.
"""
