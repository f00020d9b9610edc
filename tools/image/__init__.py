"""
Build container images without a container engine, a registry or a daemon.

Neighbours: `tools/images.py` is the command; the Dockerfiles say what is in an image, and nothing here does.
"""
