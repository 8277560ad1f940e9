"""``python -m potstill.pipeline.queries.stage PLACE REASON BY``: an update that stages its version, for the page."""

from __future__ import annotations

import sys

from potstill.errors import PotstillError
from potstill.files import hold, make_folder
from potstill.workspace import Workspace

#: A lock in the spool while it runs; it is taken before the teachers are loaded, which takes seconds.
LOCK = "stage.lock"


def main() -> None:
    """Update, even with few new observations. The workspace's record of updates has the outcome, or the error."""
    place, reason, by = sys.argv[1:]
    workspace = Workspace(place)
    make_folder(workspace.spool)
    if hold(workspace.spool / LOCK, wait=False) is None:
        return
    from potstill.pipeline.update import run_update

    try:
        run_update(workspace, stage=True, force=True, note=reason, by=by)
    except (PotstillError, OSError) as error:
        sys.exit(f"the update that {by or 'somebody'} asked for failed: {error}")


if __name__ == "__main__":
    main()
