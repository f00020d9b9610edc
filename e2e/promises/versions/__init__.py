"""
Which versions of HAMi and of this project work together?
"""
