"""The page of the API: a browser that obeys its policy runs this script and this style, and reaches nothing else."""

import base64
import hashlib
import re

from potstill.service.docs_page import HEADERS, PAGE, POLICY

TEXT = PAGE.decode()


def hashed(tag):
    (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", TEXT, re.S)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"


def test_the_policy_allows_what_is_there_and_nothing_more():
    assert dict(HEADERS)[b"content-security-policy"].decode() == POLICY
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": hashed("script"),
        "style-src": hashed("style"),
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_nothing_comes_from_elsewhere_and_nothing_is_inline():
    assert "//" not in TEXT.replace("<!doctype", "")
    assert not re.search(r"<[^>]+\s(on\w+|style|src)=", TEXT)
    assert "innerHTML" not in TEXT
