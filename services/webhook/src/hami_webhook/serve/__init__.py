"""
What the webhook does between a request and its decision.

May import `adapters`, `decide` and settings. Must never import a client library or a certificate.
"""
