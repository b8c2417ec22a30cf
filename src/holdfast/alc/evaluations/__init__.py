"""Evaluations as algocline's clients know them."""
