"""The PostgreSQL store: the contract for fleets of processes."""
