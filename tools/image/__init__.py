"""
Build container images without a container engine, a registry or a daemon.

Must never define the content of an image: the Dockerfiles do. Neighbours: `tools/images.py` is the command.
"""
