"""`demo`: a session survives the death of its process."""
