"""Hashes that say whether two pieces of work are the same: of a file's bytes, of a pair of models, of the settings."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from pagemill.jobs.models.planned import Resolved
from pagemill.jobs.settings.config import SHAPES_TEXT, Config
from pagemill.pipeline import hash_content

# Raised when the same settings begin to mean other text; finished work of before then counts as other work.
SETTINGS_VERSION = 2


def hash_model(text: Path, mmproj: Path) -> str:
    """One hash of both files, hexadecimal.  Raises OSError."""
    return hashlib.sha256(f"{hash_content(text)}:{hash_content(mmproj)}".encode("ascii")).hexdigest()


def hash_settings(config: Config, resolved: Resolved) -> str:
    """A hash of what can change a page's text, hexadecimal: choices as they were resolved, not as they were asked for."""
    everything = config.model_dump(mode="json")
    shaping = {
        f"{section}.{key or ''}": everything[section][key] if key else everything[section] for section, key in SHAPES_TEXT
    }
    text = json.dumps([SETTINGS_VERSION, asdict(resolved), shaping], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
