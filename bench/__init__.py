"""Measures what docs/measurements.md states: `python -m bench NAME` prints one JSON document."""
