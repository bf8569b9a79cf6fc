"""``python -m jobs`` is ``pagemill``."""

from jobs.cli import main

main()
