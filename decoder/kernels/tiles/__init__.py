"""Inner kernels as vector IR: what drivers call by address."""
