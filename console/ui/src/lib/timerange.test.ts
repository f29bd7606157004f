import { expect, test } from "vitest";
import { range } from "./timerange";

test("a preset ends now, and so has no end", () => {
  expect(range("24h", new Date("2026-11-25T10:00:00Z"))).toEqual({ from: "2026-11-24T10:00:00.000Z", to: "" });
});

test("the last night is from 18:00 until 08:00 in the viewer's zone", () => {
  const { from, to } = range("night", new Date(2026, 10, 25, 23, 15));
  expect(new Date(from)).toEqual(new Date(2026, 10, 24, 18));
  expect(new Date(to)).toEqual(new Date(2026, 10, 25, 8));
  expect(range("night", new Date(2026, 10, 1, 3))).toEqual({ from: new Date(2026, 9, 31, 18).toISOString(), to: "" });
});
