"""From the bytes of one record to a row, or to a reason why not: what a topic's contract asks of it."""
