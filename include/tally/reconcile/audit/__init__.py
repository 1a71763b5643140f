"""Holds sealed windows against their seals again, and holds those that fail."""
