"""
What the services rely on of a cluster, tried on the embedded one and on a real one.
"""
