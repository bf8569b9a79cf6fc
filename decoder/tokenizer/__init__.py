"""Text to token ids and back, and how a conversation becomes a prompt."""
