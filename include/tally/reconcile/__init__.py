"""Compare the two layers, explain every difference from the ledger, judge, and seal what reconciles."""
