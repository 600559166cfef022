"""Where the user's prices live on this machine."""

import os
from pathlib import Path


def data_folder() -> Path:
    """Where the book lives: PERRUN_DATA_DIR, or the user's data folder of the platform."""
    chosen = os.environ.get("PERRUN_DATA_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_path

    return user_data_path("perrun", appauthor=False)
