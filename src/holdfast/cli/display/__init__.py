"""How sessions, events, queries and faults look on a terminal."""
