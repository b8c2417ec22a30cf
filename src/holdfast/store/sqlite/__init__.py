"""The SQLite store: one file, several processes, every acknowledged write on disk."""
