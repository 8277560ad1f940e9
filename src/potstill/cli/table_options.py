"""Options that say which column of a table of decisions is what, the same for every command that reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from potstill.errors import InvalidOption

if TYPE_CHECKING:
    from potstill.tables import Columns

#: Heading of these options in the help.
OF_TABLES = "For a table of decisions"

Action = Annotated[str | None, typer.Option(help="Column of the action. Default: action.", rich_help_panel=OF_TABLES)]
RewardColumn = Annotated[
    str | None, typer.Option(help="Column of the reward. Default: reward.", rich_help_panel=OF_TABLES)
]
Propensity = Annotated[
    str | None,
    typer.Option(
        help="Column of the probability of the action, a number if it was always the same, or `estimated`. Default: "
        "propensity.",
        rich_help_panel=OF_TABLES,
    ),
]
Density = Annotated[
    str | None,
    typer.Option(
        help="Column of the density, or a number, instead of --propensity: the action is then a number.",
        rich_help_panel=OF_TABLES,
    ),
]
Time = Annotated[str | None, typer.Option("--time", help="Column of the time.", rich_help_panel=OF_TABLES)]
Context = Annotated[
    str | None,
    typer.Option(help="Columns known before the decision, comma-separated.", rich_help_panel=OF_TABLES),
]
SkipUnfit = Annotated[
    bool,
    typer.Option(
        "--skip-unfit", help="Leave out rows that do not fit, instead of refusing the table.", rich_help_panel=OF_TABLES
    ),
]


def columns(stated: Mapping[str, str | None], propensity: str | None) -> Columns:
    """The columns that options state.

    Args:
        stated: Values of the options, by name.
        propensity: The propensity if no option states it or a density; None if it is not known.
    """
    from potstill.tables import Columns

    if stated["propensity"] and stated["density"]:
        raise InvalidOption("state --density if the action is a number, or --propensity if it is of a list, not both")
    named = stated["density"] or stated["propensity"] or propensity
    constant = None if named is None else number(named)
    return Columns(
        action=stated["action"] or "action",
        reward=stated["reward"] or "reward",
        propensity=named if constant is None else constant,
        is_density=stated["density"] is not None,
        time=stated["time"],
        context=tuple(split(stated["context"])),
    )


def split(names: str | None) -> list[str]:
    """Comma-separated names."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def number(stated: str) -> float | None:
    """A number; None if the text is none."""
    try:
        return float(stated)
    except ValueError:
        return None
