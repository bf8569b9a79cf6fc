"""``python -m pagemill`` is the command ``pagemill``."""

from pagemill.jobs.cli.app import main

main()
