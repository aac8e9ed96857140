"""Python packages that tests fetch by pip into the build folder, once."""

import importlib
import os
import subprocess
import sys

from program import PROGRAM

FETCH_SECONDS = 500


def fetch(folder, *packages):
    """Makes packages importable; None, or why they are not there. `folder`: in the build folder."""
    path = os.path.join(os.path.dirname(os.path.abspath(PROGRAM)), folder)
    sys.path.insert(0, path)
    try:
        for name in packages:
            importlib.import_module(name)
        return None
    except ImportError:
        pass
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade",
                          "--disable-pip-version-check", "--target", path, *packages],
                         capture_output=True, text=True, timeout=FETCH_SECONDS)
    if pip.returncode != 0:
        return f"{', '.join(packages)} cannot be fetched: " + pip.stderr.strip().split("\n")[-1]
    importlib.invalidate_caches()  # the folder was not there when it was looked for
    return None
