"""Implementations of ``vision.encoder.Encoder``."""
