"""Graders: what says how good an answer is. Some are pure, some ask a model or a person in a session of their own."""
