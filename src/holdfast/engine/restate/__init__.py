"""Restate as the dispatcher: it is asked to see that somebody works on a session, and learns nothing else of it."""
