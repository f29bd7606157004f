import { expect, test } from "vitest";
import type { Job } from "../api/client";
import { changesSince } from "./sincegood";

const good = { run_id: "g", at: "2026-03-01T00:00:00.000Z", version: 1, instance: "a", executor_version: "1.4" };
const edited = { code: "job_edited" as const, args: { from: 1, to: 2 }, text: "the job was edited" };
const health = { last_success: good, last_failure: { run_id: "f" }, changes: [edited] } as unknown as NonNullable<
  Job["health"]
>;
const run = (id: string, instance: string, executor_version: string) =>
  ({ id, instance, attempts: [{ instance, executor_version }] }) as unknown as Parameters<typeof changesSince>[1];

test("the newest failure has the changes that the server has found", () => {
  expect(changesSince(health, run("f", "b", "1.5"))).toEqual([edited]);
});

test("an earlier failure is compared by instance and version of the executor", () => {
  expect(changesSince(health, run("e", "b", "1.5")).map((c) => [c.code, c.args])).toEqual([
    ["executor_changed", { from: "1.4", to: "1.5" }],
    ["instance_changed", { from: "a", to: "b" }],
  ]);
  expect(changesSince(health, run("e", "a", "1.4"))).toEqual([]);
  expect(changesSince(health, run("e", "", ""))).toEqual([]);
  expect(
    changesSince({ ...health, last_success: undefined } as unknown as typeof health, run("e", "b", "1.5")),
  ).toEqual([]);
});
