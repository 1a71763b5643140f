"""One query a topic: fetched and decoded once, for all pipelines whose results can be added up from parts."""
