"""
The records of a run, and the figures made of them.

May import nothing of the other rooms. Must never start a process or send a request.
"""
