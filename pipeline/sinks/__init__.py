"""Outputs: one file each, one row in ``SINKS``."""
