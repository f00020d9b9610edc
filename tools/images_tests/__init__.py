"""
Tests of the image tools, and of the images that they build.
"""
