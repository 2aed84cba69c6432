"""memagent: read a document of any length with a small window and a memory that is overwritten."""

from __future__ import annotations

__version__ = "0.1.0"
