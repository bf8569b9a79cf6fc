"""Trains the sample model on pages that it renders itself: `python -m samples.model.train --help`."""
