import { expect, test } from "vitest";
import { grouped, nameOf, type Item } from "./attention";

const item = (kind: string, group: string, acknowledged = false): Item => ({
  id: `${kind}:${group}`,
  kind,
  group,
  job_id: null,
  since: null,
  count: 1,
  text: "",
  ...(acknowledged ? { acknowledged: { at: "", by: "mei", note: "", until: null } } : {}),
});

test("failing jobs come first, acknowledged items are apart, and kinds of a newer server are last", () => {
  const { open, acked } = grouped([
    item("of_tomorrow", "a"),
    item("dead_letters", ""),
    item("missed", "a"),
    item("job_failing", "a"),
    item("job_failing", "b", true),
    item("group_without_executors", "b"),
  ]);
  expect(open.map((i) => i.kind)).toEqual([
    "job_failing",
    "group_without_executors",
    "missed",
    "dead_letters",
    "of_tomorrow",
  ]);
  expect(acked.map((i) => i.id)).toEqual(["job_failing:b"]);
});

test("a group's list has only its items", () => {
  const { open } = grouped([item("missed", "a"), item("missed", "b"), item("dead_letters", "")], "b");
  expect(open.map((i) => i.group)).toEqual(["b"]);
});

test("an undelivered alert is named by its channel, which may contain colons", () => {
  expect(nameOf({ ...item("alert_undelivered", "a"), id: "alert_undelivered:a:ops:mail" })).toBe("ops:mail");
  expect(nameOf({ ...item("job_failing", "a"), job_name: "invoices" })).toBe("invoices");
  expect(nameOf(item("backlog", "a"))).toBe("a");
});
