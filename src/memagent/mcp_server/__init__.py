"""The MCP server: other programs' models ask documents, and go on from readings.

A reading here is that of the command line: a `Session` with the journal, of which every turn is on disk before the next
one. What may be read is decided in `roots` alone, what is said of a reading in `values`.
"""
