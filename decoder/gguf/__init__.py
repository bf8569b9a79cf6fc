"""GGUF files: headers parsed safely from hostile bytes, files mapped."""
