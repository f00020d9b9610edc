"""
Tests of promises through all four services, in a room for each question.

A test here runs on both clusters, unless it is marked. May import `harness`, `testbed` and the clusters. No other
package imports a test.
"""
