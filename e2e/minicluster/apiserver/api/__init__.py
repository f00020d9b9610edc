"""
The language of the API: resources, error bodies, patches, tables, discovery documents, protobuf.

Functions of their arguments. Must never hold an object, read a clock or import another room of the API server.
"""
