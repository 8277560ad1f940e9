"""What commands on a workspace share."""

from __future__ import annotations

from typing import Annotated

import typer

from potstill.registry import Conflict, NoState, UnknownVersion

Place = Annotated[
    str, typer.Argument(metavar="DIR", help="The workspace: a folder, or s3://bucket/prefix.", show_default=False)
]

#: What a user can mend or wait out, and so sees as one line.
MENDABLE = (ValueError, OSError, Conflict, NoState, UnknownVersion)
