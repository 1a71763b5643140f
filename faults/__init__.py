"""Puts faults on a running Tally from outside, and proves that none of them loses, doubles or hides an event."""
