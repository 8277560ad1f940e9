/** Texts, by the hashed n-grams of their words' characters. */

import { isUnicode, signedHashModulo } from "./draw.js";
import { euclidean, missingError, mistyped, numbered, PUBLIC_KEY, readSize } from "./encoding.js";
import { InvalidContext, quoted, shown } from "./errors.js";
import { choice } from "./fields.js";

/** Most characters (code points) of a text. */
const LONGEST_TEXT = 4_096;

/** Letters and digits of ASCII, lowered, and all that is not ASCII. */
const WORDS = /[0-9a-z\u{80}-\u{10ffff}]+/gu;

/** A text, by the hashed n-grams of its words' characters. */
export class TextFeature {
  format = 2;

  constructor(described, path, at) {
    this.name = described.name;
    this.at = at;
    this.size = readSize(described, path, 2);
    this.ngrams = choice(described, "ngrams", [2, 3, 4, 5, 6, 7, 8], path, 3);
    this.missing = choice(described, "missing", ["error", "flag"], path, "error");
    this.labels = numbered(this.size, (i) => `${this.name}~${i}`, this);
  }

  write(value, row) {
    if (typeof value === "string") this.#writeText(value, row);
    else if (value !== null && value !== undefined) throw mistyped(this.name, "a string", value);
    else if (this.missing === "error") throw missingError(this.name, "missing='flag'");
    else row[this.at + this.size] = 1;
  }

  #writeText(text, row) {
    this.#check(text);
    const counts = new Float64Array(this.size);
    for (const ngram of this.#pieces(text)) {
      const { column, negative } = signedHashModulo(ngram, PUBLIC_KEY, this.size);
      counts[column] += negative ? -1 : 1;
    }
    const length = euclidean(counts);
    for (let i = 0; length > 0 && i < this.size; i++) row[this.at + i] = counts[i] / length;
  }

  /** The n-grams of each word with a space on either side; a word that is too short for one is one as a whole. */
  *#pieces(text) {
    const lowered = text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
    for (const [word] of lowered.matchAll(WORDS)) {
      const characters = [" ", ...word, " "];
      for (let i = 0; i === 0 || i + this.ngrams <= characters.length; i++) {
        yield characters.slice(i, i + this.ngrams).join("");
      }
    }
  }

  #check(text) {
    if (text.length > 2 * LONGEST_TEXT || countCharacters(text) > LONGEST_TEXT) {
      const must = `expected a text of at most ${LONGEST_TEXT} characters, got one of ${text.length} UTF-16 units; cut it`;
      throw new InvalidContext(`feature ${quoted(this.name)}: ${must}`);
    }
    if (isUnicode(text)) return;
    throw new InvalidContext(
      `feature ${quoted(this.name)}: expected a text of valid Unicode, got ${shown(text)}; replace lone surrogates`,
    );
  }
}

/** Code points rather than UTF-16 units. */
function countCharacters(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}
