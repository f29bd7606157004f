import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Job } from "../api/client";
import { draftOf } from "./draft";
import { fromYaml } from "./jobyaml";

const contract = JSON.parse(readFileSync(new URL("../../../api/testdata/openapi.json", import.meta.url), "utf8")) as {
  components: { schemas: { Job: { properties: Record<string, { readOnly?: boolean }> } } };
};
const fields = Object.entries(contract.components.schemas.Job.properties);
const readOnly = fields.filter(([name, field]) => field.readOnly && name !== "version").map(([name]) => name);

// POST /jobs refuses the fields that the server sets.
test("a copy of a job, and a job from YAML, have no field that the server sets", () => {
  expect(readOnly).toContain("schedule_description");
  const job = Object.fromEntries(fields.map(([name]) => [name, null])) as unknown as Job;
  const whole = { ...job, name: "a", timeout: "0s", start_deadline: "10m0s", children: [], tags: [] } as Job;
  expect(Object.keys(draftOf(whole, true)).filter((name) => readOnly.includes(name))).toEqual([]);
  const text = `name: a\nschedule: {kind: none}\n${readOnly.map((name) => `${name}: null`).join("\n")}\n`;
  expect(Object.keys(fromYaml(text)).filter((name) => readOnly.includes(name))).toEqual([]);
});
