"""
What holds for all tests of this tree: a generated example may take its time, because machines differ.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("hami", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hami")
