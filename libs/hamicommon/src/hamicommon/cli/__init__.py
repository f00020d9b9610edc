"""
What `python -m hamicommon` prints and takes, and what the commands of the scheduler and the client share with it.

A module here may import every format, and read the file that the command line names. Only commands import it.
"""
