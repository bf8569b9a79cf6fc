"""Speed, measured: ``python -m tests.bench``."""
