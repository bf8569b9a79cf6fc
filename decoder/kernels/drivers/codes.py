"""Opcodes of a program."""

PREPARE = 1
MATMUL = 2
ROPE_STORE = 3
ATTEND = 4
