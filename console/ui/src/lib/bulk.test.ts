import { expect, test } from "vitest";
import { bulkFilter, runCount, showsPlanned } from "./bulk";

const now = new Date("2026-11-25T22:00:00Z");

test("an action applies to the runs of the list whose state allows it", () => {
  expect(bulkFilter("retry", { state: "failed,running", job_id: "7" }, now)).toEqual({ state: ["failed"], job_id: 7 });
  expect(bulkFilter("kill", { state: "failed" }, now)).toBeUndefined();
  expect(bulkFilter("retry", { group: "billing", from: "2026-11-24T17:00:00Z" }, now)).toEqual({
    group: "billing",
    from: "2026-11-24T17:00:00Z",
  });
});

test("there is no action on the runs that a search finds", () => {
  expect(bulkFilter("retry", { q: "no disk", state: "failed" }, now)).toBeUndefined();
});

test("without filters there is no action on all runs", () => {
  expect(bulkFilter("kill", {}, now)).toBeUndefined();
  expect(bulkFilter("retry", { planned: "true" }, now)).toBeUndefined();
});

test("a kill spares planned runs that the list hides", () => {
  expect(bulkFilter("kill", { group: "billing" }, now)).toEqual({ group: "billing", to: now.toISOString() });
  expect(bulkFilter("kill", { group: "billing", planned: "true" }, now)).toEqual({ group: "billing" });
  expect(bulkFilter("kill", { state: "pending,queued" }, now)).toEqual({ state: ["pending", "queued"] });
  expect(showsPlanned({ state: "queued" })).toBe(false);
});

test("a lower bound of a number looks like one", () => {
  expect(runCount({ matched: 12 })).toBe("12");
  expect(runCount({ matched: 10_000, at_least: true })).toBe("10000+");
});
