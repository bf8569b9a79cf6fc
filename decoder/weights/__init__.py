"""Weights: from tensors of a file to panels in memory."""
