"""Tests of the page of reliability."""
