"""Durable state: what is done, who does what, and the records of finished pages."""
