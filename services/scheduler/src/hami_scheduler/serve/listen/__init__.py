"""
What answers on a port: the routes, the extender protocol's JSON, and the metrics.

May import the verbs and every room below `serve`. Must never call the API server itself.
"""
