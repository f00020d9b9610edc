"""
The page of `kubectl hami ui`: a web server on loopback and the files it serves.

Gets what it asks of the cluster as functions, and knows no other room. Must never change anything, listen on another
address than loopback, or answer who does not have the token.
"""
