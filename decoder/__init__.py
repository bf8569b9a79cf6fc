"""A GGUF file and prompts in, tokens out."""
