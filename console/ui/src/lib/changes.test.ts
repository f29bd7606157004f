import { expect, test } from "vitest";
import { differences, lineDiff } from "./changes";

test("differences names nested fields, and leaves out what changes with every version", () => {
  const before = { name: "report", version: 1, retries: 0, tags: ["a"], schedule: { kind: "cron", expr: "0 9 * * *" } };
  const after = {
    name: "report",
    version: 2,
    retries: 3,
    tags: ["a", "b"],
    schedule: { kind: "cron", expr: "0 10 * * *" },
  };
  expect(differences(before, after)).toEqual([
    { field: "retries", from: "0", to: "3" },
    { field: "tags", from: "a", to: "a, b" },
    { field: "schedule.expr", from: "0 9 * * *", to: "0 10 * * *" },
  ]);
  expect(differences(null, { name: "report", param: "" })).toEqual([{ field: "name", from: "", to: "report" }]);
  expect(differences(before, before)).toEqual([]);
});

test("a text of several lines is compared line by line", () => {
  const written = (from: string, to: string) =>
    lineDiff(from, to)
      .map((l) => ({ same: " ", added: "+", removed: "-" })[l.kind] + l.text)
      .join("|");
  expect(written("a\nb\nc", "a\nB\nc")).toBe(" a|-b|+B| c");
  expect(written("a\nb\nc\nd", "b\nx\nd")).toBe("-a| b|-c|+x| d");
  expect(written("", "a")).toBe("-|+a");
  const long = Array.from({ length: 1500 }, (_, i) => `${i}`);
  expect(lineDiff(long.join("\n"), [...long].reverse().join("\n")).length).toBe(3000);
});
