import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { sha256 } from "../src/sha256.js";

const bytes = (text) => new TextEncoder().encode(text);

test("the examples of FIPS 180-4", () => {
  assert.equal(sha256(bytes("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  assert.equal(sha256(bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert.equal(
    sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
  );
  assert.equal(
    sha256(bytes("a".repeat(1_000_000))),
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
  );
});

test("every length around the blocks, at any alignment", () => {
  const message = Uint8Array.from({ length: 300 }, (_, i) => (i * 89 + 7) & 0xff);
  for (let length = 0; length <= 290; length++) {
    const part = message.subarray(length % 5, (length % 5) + length);
    assert.equal(sha256(part), createHash("sha256").update(part).digest("hex"), `length ${length}`);
  }
});
