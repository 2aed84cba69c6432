"""Where memagent keeps a user's data: the journal and imported profiles."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_folder() -> Path:
    """MEMAGENT_HOME if it is set, else the platform's user data folder. It may not exist yet."""
    chosen = os.environ.get("MEMAGENT_HOME")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_data_dir("memagent", appauthor=False))
