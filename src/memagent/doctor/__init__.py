"""Measures a served model with a few real turns, and says what would make reading with it faster or safer.

`probe` asks the server and times it, `values` holds what was found, `advice` draws the conclusions, without any I/O.
"""
