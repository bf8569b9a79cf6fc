"""The watch folder."""
