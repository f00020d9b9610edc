"""
What `python -m hamicommon` prints and takes.

A module here may import every format, and read the file that the command line names. Only `__main__` imports it.
"""
