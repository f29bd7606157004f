import { expect, test } from "vitest";
import type { LogLine } from "../api/client";
import { FirstError, firstOfAttempt, lineAt, lineInAttempt } from "./loglines";

const line = (n: number, level: string, text = "") => ({ n, level, text, attempt: 1, at: "" }) as LogLine;

function first(...lines: LogLine[]) {
  const f = new FirstError();
  for (const l of lines) f.add(l);
  return f.line(lines[0]);
}

test("the first error is a line with level error, else of stderr, else with a word such as error", () => {
  expect(first(line(1, "stdout", "ERROR: no disk"), line(2, "stderr"), line(3, "info"), line(4, "error"))).toBe(4);
  expect(first(line(1, "stdout", "ERROR: no disk"), line(2, "stderr"), line(3, "stderr"))).toBe(2);
  expect(first(line(1, "stdout", "terrors"), line(2, "stdout", "Fatal: no disk"))).toBe(2);
  expect(first(line(1, "info"), line(2, "stdout"))).toBeUndefined();
});

test("a line that the page has dropped is no first error", () => {
  const f = new FirstError();
  f.add(line(1, "error"));
  f.add(line(8, "stderr"));
  expect(f.line(line(5, "info"))).toBe(8);
});

test("a line is found by its number, and so is the first line of an attempt", () => {
  const lines = [line(1, "info"), line(2, "info"), line(1_000_000_001, "info"), line(1_000_000_002, "info")];
  expect(lineAt(lines, 2)).toBe(1);
  expect(lineAt(lines, firstOfAttempt(2))).toBe(2);
  expect(lineAt(lines, firstOfAttempt(3))).toBe(-1);
  expect(lineAt([], 1)).toBe(-1);
  expect(lineInAttempt(firstOfAttempt(2))).toBe(1);
});
