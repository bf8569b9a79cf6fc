"""The ops of a program, each beside its definition in numpy."""
