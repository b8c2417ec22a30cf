"""`chat`: talk with a model in a durable session."""
