"""The control store: ledger, seals, streams, runs and incidents. Small; Delta commits stay the truth for what was applied."""
