"""Tokens: what is kept, who passes, and that a change reaches a running guard."""

import hashlib
import json
import re
import stat
import threading

import pytest

from potstill.service import tokens as service_tokens
from potstill.service.auth import Guard, TokenRefused
from potstill.service.tokens import FILE, SCOPES, InvalidToken, TokenFile, TokensMissing
from potstill.storage import open_storage


@pytest.fixture
def tokens(place):
    return TokenFile(open_storage(place))


@pytest.fixture
def local(tmp_path):
    return TokenFile(open_storage(tmp_path))


def header(token):
    return f"Bearer {token}".encode()


def refusal(guard, authorization, scope="decide"):
    with pytest.raises(TokenRefused) as caught:
        guard.check(authorization, scope)
    return caught.value.status


def test_a_token_is_256_random_bits_and_only_its_hash_is_kept(tmp_path, local):
    token = local.create("web", ["reward", "decide"])
    assert re.fullmatch(r"pst_[A-Za-z0-9_-]{43}", token)  # 43 · 6 bits hold 256
    text = (tmp_path / FILE).read_text()
    assert token not in text
    assert token.removeprefix("pst_") not in text
    kept = json.loads(text)["tokens"]
    assert [entry["sha256"] for entry in kept] == [hashlib.sha256(token.encode()).hexdigest()]
    assert kept[0]["scopes"] == ["decide", "reward"]
    assert local.create("other", ["decide"]) != token


def test_the_file_is_for_its_owner_only(tmp_path, local):
    local.create("web", ["decide"])
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    local.create("phone", ["decide"])
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_tokens_in_a_folder_or_an_object_store(tokens):
    assert tokens.read() is None
    token = tokens.create("web", ["decide"])
    guard = Guard(tokens)
    guard.check(header(token), "decide")
    tokens.revoke("web")
    assert tokens.read() == ()
    guard.reload()
    assert refusal(guard, header(token)) == 401


@pytest.mark.parametrize("granted", SCOPES)
@pytest.mark.parametrize("wanted", SCOPES)
def test_a_token_allows_its_scopes_and_no_other(local, granted, wanted):
    guard = Guard(_created(local, granted))
    if granted == wanted:
        guard.check(header(local.token), wanted)
    else:
        assert refusal(guard, header(local.token), wanted) == 403
    assert guard.allows(header(local.token), wanted) == (granted == wanted)


def _created(file, *scopes):
    file.token = file.create("web", scopes)
    return file


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic {}",
        b"{}",
        b"Bearer {}x",
        b"Bearer x{}",
        b"Bearer \xff\xfe",
        b"Bearer pst_",
    ],
)
def test_anything_else_is_unknown(local, wrong):
    guard = Guard(_created(local, "decide"))
    assert refusal(guard, wrong and wrong.replace(b"{}", local.token.encode())) == 401


def test_the_kept_hash_is_no_token(local):
    guard = Guard(_created(local, "decide"))
    assert refusal(guard, header(local.read()[0].sha256)) == 401


def test_the_scheme_is_not_case_sensitive(local):
    Guard(_created(local, "decide")).check(b"bearer " + local.token.encode(), "decide")


def test_the_message_says_no_token(local):
    guard = Guard(_created(local, "read"))
    with pytest.raises(TokenRefused) as caught:
        guard.check(header(local.token), "admin")
    assert local.token not in str(caught.value)
    assert "'web' lacks the scope 'admin'" in str(caught.value)


def test_without_a_file_all_pass_unless_tokens_are_required(local):
    Guard(local).check(None, "admin")
    assert Guard(local).open
    assert refusal(Guard(local, required=True), None) == 401


def test_a_guard_notices_the_first_token(local):
    guard = Guard(local)
    token = local.create("web", ["decide"])
    guard.reload()
    assert refusal(guard, None) == 401
    guard.check(header(token), "decide")


def test_revoking_all_opens_nothing(local):
    token = local.create("web", ["decide"])
    guard = Guard(local)
    local.revoke("web")
    guard.reload()
    assert refusal(guard, header(token)) == 401
    assert refusal(Guard(local), None) == 401


@pytest.mark.parametrize("known", ["from the start", "later"])
def test_deleting_the_file_opens_nothing(tmp_path, local, known):
    """Neither where the guard began with tokens nor where it heard of them later."""
    if known == "later":
        guard = Guard(local)
    token = local.create("web", ["decide"])
    if known == "from the start":
        guard = Guard(local)
    else:
        guard.reload()
    (tmp_path / FILE).unlink()
    guard.reload()
    assert refusal(guard, header(token)) == 401
    assert not guard.open


def test_while_the_file_cannot_be_read_the_last_tokens_stay(tmp_path, local, caplog):
    token = local.create("web", ["decide"])
    guard = Guard(local)
    good = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(good[:-20])
    guard.reload()
    guard.reload()
    guard.check(header(token), "decide")
    assert refusal(guard, None) == 401
    assert len(caplog.records) == 1  # once, not with every look
    (tmp_path / FILE).write_bytes(good)
    guard.reload()
    guard.check(header(token), "decide")


@pytest.mark.parametrize("damage", ["{}]", '{"tokens": [{"name": "x"}]}', '{"tokens": 3}', ""])
def test_a_damaged_file_is_refused_with_its_place(tmp_path, local, damage):
    (tmp_path / FILE).write_text(damage)
    with pytest.raises(InvalidToken, match=re.escape(FILE)):
        local.read()


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"tokens": 3}'])
def test_a_damaged_file_lets_nobody_in_until_it_is_whole_again(tmp_path, local, caplog, damage):
    """Nor does it end a worker that starts with it."""
    token = local.create("web", ["decide"])
    good = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(damage)
    guard = Guard(local)
    guard.reload()
    assert not guard.open
    assert refusal(guard, None) == refusal(guard, header(token)) == 503
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert FILE in caplog.text
    (tmp_path / FILE).write_bytes(good)
    guard.reload()
    guard.check(header(token), "decide")


def test_a_workspace_that_was_closed_stays_so_without_its_tokens(place, caplog):
    """Also for a worker that starts after they were deleted."""
    file = TokenFile(open_storage(place))
    token = file.create("web", ["decide"])
    open_storage(place).delete(FILE)
    with pytest.raises(TokensMissing, match=r"restore it, create new tokens .* potstill token open"):
        file.read()
    guard = Guard(file)
    assert not guard.open
    assert refusal(guard, None) == refusal(guard, header(token)) == 401
    assert "every request is refused" in caplog.text
    new = file.create("new", ["read"])
    Guard(file).check(header(new), "read")


def test_tokens_of_an_earlier_version_close_for_good_too(tmp_path, local):
    local.create("web", ["decide"])
    (tmp_path / "tokens-closed.json").unlink()
    Guard(local, required=True)
    (tmp_path / FILE).unlink()
    assert not Guard(local).open


def test_a_note_that_cannot_be_written_keeps_no_caller_out(local, caplog, monkeypatch):
    token = local.create("web", ["decide"])
    monkeypatch.setattr(local, "close", lambda: (_ for _ in ()).throw(PermissionError("read-only")))
    Guard(local).check(header(token), "decide")
    assert "cannot note" in caplog.text


def test_opening_again_is_explicit_and_revokes_all(place):
    file = TokenFile(open_storage(place))
    token = file.create("web", ["decide"])
    running = Guard(file)
    file.open()
    assert file.read() is None
    assert Guard(file).open
    running.reload()
    assert refusal(running, None) == refusal(running, header(token)) == 401  # until it is restarted


def test_names_are_used_once_and_must_be_known(local):
    local.create("web", ["decide"])
    with pytest.raises(InvalidToken, match="has a token 'web' already"):
        local.create("web", ["read"])
    with pytest.raises(InvalidToken, match="no token 'phone'; its tokens: web"):
        local.revoke("phone")
    with pytest.raises(InvalidToken, match="name"):
        local.create("", ["read"])
    with pytest.raises(InvalidToken, match="'wrte'"):
        local.create("x", ["read", "wrte"])
    with pytest.raises(InvalidToken, match="scopes are"):
        local.create("x", [])
    assert [token.name for token in local.read()] == ["web"]


def test_a_change_that_was_cut_short_in_an_object_store_is_told(s3, monkeypatch):
    monkeypatch.setattr(service_tokens, "LOCK_SECONDS", 0.0)
    storage = open_storage(s3)
    storage.create(f"{FILE}.lock", b"")
    with pytest.raises(InvalidToken, match=rf"locked by another process.*delete {s3}/{FILE}\.lock"):
        TokenFile(storage).create("web", ["decide"])
    storage.delete(f"{FILE}.lock")
    TokenFile(storage).create("web", ["decide"])
    TokenFile(storage).revoke("web")
    with pytest.raises(FileNotFoundError):
        storage.read(f"{FILE}.lock")


def test_tokens_made_at_once_are_all_kept(place):
    def make(number):
        TokenFile(open_storage(place)).create(f"t{number}", ["decide"])

    threads = [threading.Thread(target=make, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in TokenFile(open_storage(place)).read()} == {f"t{n}" for n in range(5)}
