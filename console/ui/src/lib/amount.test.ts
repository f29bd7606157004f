import { expect, test } from "vitest";
import { amount } from "./amount";

test("amounts are readable", () => {
  expect([0, 999, 1000, 600_000].map((n) => amount(n))).toEqual(["0", "999", "1,000", "600,000"]);
  expect([0, 1023, 1024, 1536, 50 * 2 ** 30, 150.4 * 2 ** 20, 2 ** 60].map((n) => amount(n, true))).toEqual([
    "0 B",
    "1023 B",
    "1 KiB",
    "1.5 KiB",
    "50 GiB",
    "150 MiB",
    "1024 PiB",
  ]);
});
