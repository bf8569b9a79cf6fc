"""The ops of the engine; only this folder knows the CPU."""
