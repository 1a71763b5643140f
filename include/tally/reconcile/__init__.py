"""Compare the two layers, explain every difference from the ledger, judge, and seal what reconciles.

One module a step, in that order: `compare`, `explain`, `judge`, `seal`. What is handed on is a `comparison`, made at a
`cut`. `replay` says what became of each event in the stream, `rows` how far apart rows lie, and `audit` goes over what
was sealed, again.
"""
