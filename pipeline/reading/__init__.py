"""Page images to page texts."""
