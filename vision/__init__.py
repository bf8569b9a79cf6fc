"""Page pixels in, embedding rows out."""
