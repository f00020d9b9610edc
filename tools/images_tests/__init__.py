"""
The image tools build what the Dockerfiles say, once, and the same again.
"""
