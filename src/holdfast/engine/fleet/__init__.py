"""What dispatchers with an engine underneath have in common: who is nudged when, drives, and the sweep."""
