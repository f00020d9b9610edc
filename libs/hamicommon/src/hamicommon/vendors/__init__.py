"""
Pure descriptions of the vendors: resource names, annotation keys, and how a container's resources become a request.
"""
