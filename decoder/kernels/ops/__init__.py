"""The ops of a program as recorders see them."""
