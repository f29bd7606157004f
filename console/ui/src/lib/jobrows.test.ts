import { expect, test } from "vitest";
import type { Run, Schemas } from "../api/client";
import { withMissed } from "./jobrows";

const run = (at: string) => ({ fire_time: at, created_at: at }) as Run;
const gap = (last: string) => ({ last }) as Schemas["Missed"];

test("missed fire times stand between the runs before and after them", () => {
  const runs = [run("2026-11-25T03:00:00Z"), run("2026-11-25T01:00:00Z")];
  const missed = [gap("2026-11-25T02:00:00Z"), gap("2026-11-24T23:00:00Z")];
  const rows = (complete: boolean) =>
    withMissed(runs, missed, complete).map((r) => (r.run ? `run ${r.run.fire_time}` : `missed ${r.missed.last}`));
  const until = ["run 2026-11-25T03:00:00Z", "missed 2026-11-25T02:00:00Z", "run 2026-11-25T01:00:00Z"];
  expect(rows(false)).toEqual(until);
  expect(rows(true)).toEqual([...until, "missed 2026-11-24T23:00:00Z"]);
});
