"""Evaluation: strategies, models and data compared, each trial a session. Decision 036 says how it fits together."""
