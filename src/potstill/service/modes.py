"""How a problem is answered, kept in the workspace so that every worker and a restart see it."""

from __future__ import annotations

import msgspec

from potstill.storage import Storage, child
from potstill.workspace.config import InvalidConfig, ServeConfig, ServeMode

FILE = "mode.json"


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: ServeMode


def read_mode(storage: Storage, stated: ServeConfig) -> ServeMode:
    """The mode that was asked for last; the one that `potstill.toml` states if none was."""
    try:
        mode = msgspec.json.decode(storage.read(FILE), type=_Kept).mode
    except FileNotFoundError:
        mode = stated.mode
    except msgspec.DecodeError as error:
        where = child(storage.url, FILE)
        raise InvalidConfig(f"{where}: {error}; delete it, and potstill.toml states the mode") from error
    check_mode(mode, stated)
    return mode


def write_mode(storage: Storage, stated: ServeConfig, mode: ServeMode) -> None:
    """Ask for a mode."""
    check_mode(mode, stated)
    storage.replace(FILE, msgspec.json.encode(_Kept(mode)))


def check_mode(mode: ServeMode, stated: ServeConfig) -> None:
    """Refuse a mode that the configuration does not allow."""
    if mode == "log-only" and stated.fallback is None:
        raise InvalidConfig("mode log-only needs an action to answer with: state serve.fallback in potstill.toml")
