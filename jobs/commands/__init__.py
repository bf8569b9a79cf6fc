"""What the commands do; ``cli`` imports each when it is asked for."""
