"""The network: transformer blocks recorded as a program, and the caches of keys and values."""
