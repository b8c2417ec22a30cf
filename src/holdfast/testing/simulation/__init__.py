"""Deterministic simulation: several OS processes, their store, time and faults, all on one seed."""
