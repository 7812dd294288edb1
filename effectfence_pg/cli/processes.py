"""How commands of several processes make them."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from typing import Any

LONGEST_FOLDER = 64
"""Bytes: the address of a socket has 104 on some systems, and `multiprocessing` adds up to 40."""


def forking(module: str) -> Any:
    """A context of `multiprocessing`, whose processes are forked from one that has the module, no thread and no connection.

    That one listens on a socket in the temporary folder. Where the name of that would be too long, each imports for itself.
    """
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    return context
