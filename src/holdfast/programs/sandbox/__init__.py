"""The kind `python`: strategies in sandboxed Python, stored with their interpreter's state at every pause."""
