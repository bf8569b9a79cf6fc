"""Model files: which pair a job uses, whether it runs here, and how it is fetched."""
