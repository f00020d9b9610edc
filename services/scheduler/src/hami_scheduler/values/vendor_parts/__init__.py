"""
Functions that several modules of `vendors` share.

A module here may import the values above it, and must never import a vendor.
"""
