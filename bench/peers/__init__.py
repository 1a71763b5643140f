"""Tally beside its peers: the same work, interleaved, each answer checked before its time counts."""
