"""
The API server: REST semantics from memory, one file a concern; `main` starts it.
"""
