"""Weight formats of GGUF files: one class each."""
