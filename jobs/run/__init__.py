"""The run of a job."""
