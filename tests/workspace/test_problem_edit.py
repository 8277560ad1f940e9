"""The list of actions in the text of `problem.toml`: any layout, and nothing else changes."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.workspace import CannotEdit
from potstill.workspace.problem_edit import with_actions

#: Names with what TOML escapes, brackets, commas, comment signs and other alphabets.
NAMES = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)
SPACE = st.sampled_from(["", " ", "  ", "\t"])
COMMENT = st.text(st.sampled_from("abc ,\"'[]#=é"), max_size=12).map(lambda text: f"# {text}")


@st.composite
def written(draw, name: str) -> str:
    """A name as some TOML string."""
    plain = all(c.isprintable() and c not in "'\n\r" for c in name)
    kinds = ["basic", "multi", *(["literal", "multi-literal"] if plain else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "literal":
        return f"'{name}'"
    if kind == "multi-literal":
        return f"'''{name}'''"
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in name)
    return f'"{escaped}"' if kind == "basic" else f'"""{escaped}"""'


@st.composite
def lists(draw, names: list[str], newline: str) -> str:
    """A list in some layout: on one line, one item a line, or with comments and blank lines anywhere."""
    layout, out = draw(st.sampled_from(["inline", "lines", "wild"])), "["
    for place, name in enumerate(names):
        last, text = place == len(names) - 1, draw(written(name))
        comma = "," if not last or draw(st.booleans()) else ""
        comment = f" {draw(COMMENT)}" if draw(st.booleans()) else ""
        if layout == "inline":
            out += f"{draw(SPACE)}{text}{draw(SPACE)}{comma}"
        elif layout == "lines":
            out += f"{newline}    {text}{comma}{comment}" + (newline if last else "")
        else:
            before = draw(COMMENT) + newline if draw(st.booleans()) else ""
            before = newline + before if before else ""
            out += f"{before}{draw(SPACE)}{text}{draw(SPACE)}{comment + newline if comment else ''}{comma}{draw(SPACE)}"
    return out + draw(SPACE) + "]"


@st.composite
def problems(draw) -> tuple[str, list[str], list[str]]:
    """The text of a file, the names of its actions, and those that are retired."""
    names = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    retired = draw(st.sampled_from([None, [], names[:1], names[1:]]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    decoy = draw(lists(names, newline))  # the same list elsewhere
    parts, both = [draw(lists(names, newline))], retired is not None
    if both:
        parts.append(draw(lists(retired, newline)))
    keys = ["names", "retired"][: len(parts)]
    style = draw(st.sampled_from(["table", "dotted", "quoted", "inline"]))
    entries = [f"{key} = {part}" for key, part in zip(keys, parts, strict=True)]
    comment = f" {draw(COMMENT)}" if draw(st.booleans()) else ""
    if style == "inline":
        actions = f'actions = {{ type = "discrete", {", ".join(entries)} }}{comment}{newline}'
    elif style == "dotted":
        actions = "".join(f"actions.{entry}{comment}{newline}" for entry in ['type = "discrete"', *entries])
    else:
        head = "[actions]" if style == "table" else '[ "actions" ]'
        actions = f'{head}{comment}{newline}type = "discrete"{newline}'
        actions += "".join(f"  {entry}{comment}{newline}" for entry in entries)
    name = f'# "a", [b] {newline}name = "p"{newline}'
    context = f'[[context]]{newline}type = "categorical"{newline}name = "c"{newline}values = {decoy}{newline}'
    text = name + (actions + context if style in ("inline", "dotted") or draw(st.booleans()) else context + actions)
    return text, names, list(retired or [])


def comments(text: str) -> list[str]:
    """Everything behind the comment signs of the lines, without strings that hold one."""
    return [
        line.partition("# ")[2] for line in text.splitlines() if "# " in line and '"' not in line and "'" not in line
    ]


def stated(data: bytes) -> dict:
    return tomllib.loads(data.decode())


def check(text: str, names: list[str], retired: list[str]) -> str:
    """The text with other actions; everything else that it states is the same."""
    before, after = stated(text.encode()), stated(data := with_actions(text.encode(), names, retired, "problem.toml"))
    assert after["actions"].pop("names") == names
    assert after["actions"].pop("retired", []) == retired
    for key in ("names", "retired"):
        before["actions"].pop(key, None)
    assert after == before
    return data.decode()


@given(problems(), NAMES)
def test_an_action_is_added_in_any_layout(problem, name):
    text, names, retired = problem
    if name not in names:
        after = check(text, [*names, name], retired)
        assert comments(text) == comments(after)
        # What was there is still there, in its order: only text was put in.
        letters = iter(after)
        assert all(letter in letters for letter in text)


@given(problems(), st.data())
def test_an_action_is_retired_and_restored_in_any_layout(problem, data):
    text, names, retired = problem
    name = data.draw(st.sampled_from(names))
    if name not in retired:
        after = check(text, names, [*retired, name])
        letters = iter(after)
        assert all(letter in letters for letter in text)
        check(after, names, retired)
    else:
        check(text, names, [one for one in retired if one != name])


@given(problems(), st.data())
def test_an_action_is_removed_in_any_layout(problem, data):
    text, names, retired = problem
    name = data.draw(st.sampled_from(names))
    after = check(text, [one for one in names if one != name], [one for one in retired if one != name])
    letters = iter(text)
    assert all(letter in letters for letter in after)  # only text was taken out


def test_lines_keep_their_form():
    text = """\
[actions]  # what to choose
type = "discrete"
names = [
    "360p",   # for slow lines
    # the usual one
    "720p",
    "1080p"   # the best
]  # by height
"""
    added = check(text, ["360p", "720p", "1080p", "4k"], [])
    assert added == text.replace('"1080p"   # the best', '"1080p",   # the best\n    "4k"')
    removed = check(text, ["720p", "1080p"], [])
    assert removed == text.replace('    "360p",   # for slow lines\n', "")
    retired = check(text, ["360p", "720p", "1080p"], ["720p"])
    assert retired == text.replace("]  # by height\n", ']  # by height\nretired = ["720p"]\n')
    assert check(retired, ["360p", "720p", "1080p"], []) == retired.replace('["720p"]', "[]")


def test_inline_lists_keep_their_form():
    text = "actions = { type = 'discrete', names = ['a', 'b', 'c'] }\n"
    assert check(text, ["a", "b", "c", "d"], []) == text.replace("'c'", "'c', \"d\"")
    assert check(text, ["a", "c"], []) == text.replace("'b', ", "")
    assert check(text, ["a", "b"], []) == text.replace(", 'c'", "")
    assert check(text, ["a", "b", "c"], ["b"]) == text.replace("'c']", "'c'], retired = [\"b\"]")


def test_a_layout_that_is_not_understood_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr("potstill.workspace.problem_edit._lists", lambda _: iter(()))
    text = b'[actions]\ntype = "discrete"\nnames = ["a", "b"]\n'
    with pytest.raises(
        CannotEdit, match=r"(?s)problem.toml: the list of actions could not be changed.*\"c\""
    ) as caught:
        with_actions(text, ["a", "b", "c"], [], "problem.toml")
    assert "potstill update" in str(caught.value)
