"""The control store: ledger, seals, streams, runs and incidents. Delta commits stay the truth for what was applied."""
