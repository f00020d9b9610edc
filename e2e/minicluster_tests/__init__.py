"""
Tests of the embedded cluster that do not run on a real one: functions, processes, faults, real back-offs.
"""
