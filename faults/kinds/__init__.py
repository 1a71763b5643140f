"""The faults, by name; each module holds some of one kind."""
