"""Pages in, page texts out; one process, no durable state."""
