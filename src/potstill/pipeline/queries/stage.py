"""``python -m potstill.pipeline.queries.stage PLACE REASON BY``: an update that stages its version, for the page."""

from __future__ import annotations

import sys

from potstill.errors import PotstillError
from potstill.pipeline.update import run_update
from potstill.workspace import Workspace


def main() -> None:
    """Update, even with few new observations. The workspace's record of updates has the outcome, or the error."""
    try:
        run_update(Workspace(sys.argv[1]), stage=True, force=True, note=sys.argv[2], by=sys.argv[3])
    except (PotstillError, OSError) as error:
        sys.exit(f"the update that {sys.argv[3]} asked for failed: {error}")


if __name__ == "__main__":
    main()
