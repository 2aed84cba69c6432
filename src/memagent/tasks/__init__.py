"""Seeded synthesis of questions about long texts: (spec, seed, index, length) → samples."""
