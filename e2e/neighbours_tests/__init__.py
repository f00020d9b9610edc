"""Tests with programs of others beside the services. `tox -e neighbours` runs them, no other check does."""
