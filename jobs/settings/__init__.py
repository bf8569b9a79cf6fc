"""Settings: config.yaml, job files, the environment and flags."""
