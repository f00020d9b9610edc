"""
Does what the documentation shows work?
"""
