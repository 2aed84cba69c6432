"""Readers compared on samples with known answers: runner · records · scores · summary · report."""
