"""Documents from anywhere: files, folders, archives and addresses."""
