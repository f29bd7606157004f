// Each rule of the prose check finds its own examples, and finds nothing in plain sentences.
import assert from "node:assert/strict";
import { test } from "node:test";
import { lint } from "./lint.mjs";

const found = [
  ["docs/a.md", "The yardstick writes one row.", "baseline"],
  ["docs/a.md", "The executor is told what came of it.", "is notified"],
  ["docs/a.md", "What nobody takes is dropped.", "no dispatcher"],
  ["docs/a.md", "Who has no room is offered nothing.", "a clause is the subject"],
  ["docs/a.md", "Were it kept until the join, two broadcasts would wait.", "inverted condition"],
  ["docs/a.md", "The row is locked, for it changes.", "write because"],
  ["docs/a.md", "Of all runs a visit plans one second.", "begin with the subject"],
  ["a/a.go", "package a\n\n// The spool is mended when the disk works again.\nvar x = 1\n", "repair"],
  ["a/a.go", 'package a\n\nvar x = "cannot settle the results, trying again"\n', "retrying"],
  ["a/a.sql", "-- Nobody reads this column.\nSELECT 1;\n", "no dispatcher"],
  ["a/a.ts", "const x = 1; // told what came of it\n", "the result"],
];

const plain = [
  ["docs/a.md", "Messages without a receiver are dropped. What is a run? `mend` is code."],
  ["a/a.go", 'package a\n\n// The dispatcher binds no runs until NATS answers.\nvar nobody = "nobody"\n'],
  ["a/a.go", 'package a\n\nvar x = "http://mend.example/anew" // a URL in a string is no sentence\n'],
  ["a/a.sql", "SELECT 'nobody'; -- the database's own user\n"],
];

for (const [path, text, advice] of found) {
  test(`found: ${text.trim()}`, async () => {
    const messages = (await lint(path, text)).map((m) => m.message);
    assert.ok(messages.some((m) => m.includes(advice)), `got ${JSON.stringify(messages)}`);
  });
}

for (const [path, text] of plain) {
  test(`plain: ${text.trim()}`, async () => {
    assert.deepEqual((await lint(path, text)).map((m) => m.message), []);
  });
}

test("a finding names its line", async () => {
  const text = "package a\n\n// A comment of two lines,\n// and the second one is mended.\nvar x = 1\n";
  const [message] = await lint("a/a.go", text);
  assert.equal(message.loc.start.line, 4);
});
