"""Many documents, durable: what to do, what is done, who does it."""
