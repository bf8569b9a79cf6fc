"""The loops around tiles: static nogil functions that call tiles by address."""
