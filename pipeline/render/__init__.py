"""Documents to page images, in child processes."""
