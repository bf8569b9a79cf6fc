"""Runs measured against the truth and against each other."""
