"""Background work of sessions: processes, which are sessions themselves."""
