import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { between, parseVersions } from "./versions";

const change = (version: number, before: object, after: object): Schemas["Change"] => ({
  id: version,
  at: `2026-01-0${version}T00:00:00Z`,
  actor: `user${version}`,
  remote: "",
  action: "job.update",
  object: "job/1",
  before: { ...before, version: version - 1 },
  after: { ...after, version },
});
const changes = [
  change(4, { param: "b", timeout: "1m" }, { param: "c", timeout: "1m" }),
  change(3, { param: "b", timeout: "0s" }, { param: "b", timeout: "1m" }),
  change(2, { param: "a", timeout: "0s" }, { param: "b", timeout: "0s" }),
];

test("the difference of two versions has the changes between them and who made them", () => {
  const found = between(changes, 2, 4);
  expect(found?.fields).toEqual([
    { field: "param", from: "b", to: "c" },
    { field: "timeout", from: "0s", to: "1m" },
  ]);
  expect(found?.by.map((b) => b.actor)).toEqual(["user4", "user3"]);
});

test("without the changes back to the first version, there is no difference", () => {
  expect(between(changes.slice(0, 1), 2, 4)).toBeUndefined();
  expect(between([], 2, 4)).toBeUndefined();
  expect(between([{ ...changes[0]!, before: null }], 3, 4)).toBeUndefined();
});

test("versions in an address are ordered numbers", () => {
  expect(parseVersions("2-4")).toEqual({ from: 2, to: 4 });
  for (const bad of ["", "4-2", "2-2", "2", "a-b", "2-4-5"]) expect(parseVersions(bad)).toBeUndefined();
});
