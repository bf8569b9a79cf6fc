"""What a file is, how many pages it has, and how a page is drawn."""
