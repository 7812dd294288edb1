"""Names of a test's cases that are the same in every process, as tests that are shared among processes need them."""

from __future__ import annotations

import re
from typing import Any


def steady(value: Any) -> str:
    """What repr says, without where in memory it is."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
