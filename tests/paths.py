"""Where the tests find the checkout: child processes start there, so that they import the tests by the same names."""

from pathlib import Path

REPO = Path(__file__).parents[1]
