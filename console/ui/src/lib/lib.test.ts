import { describe, expect, it } from "vitest";
import { en } from "../i18n/en";
import { zh } from "../i18n/zh";
import { ApiError, search } from "../api/client";
import { plain, spans } from "./ansi";
import { faultyFields, fieldAt, fieldNames, fields } from "./cron";
import { tidy, emptyDraft, tidySchedule } from "./draft";
import { clockChanges, fixedTimes, transitions } from "./dst";
import { draftFrom, fromYaml, toYaml, YamlFault } from "./jobyaml";
import { inTurn } from "./inturn";
import { changedFields } from "./changes";
import { layOut, stack } from "./graph";
import { grid } from "./grid";
import { merge } from "./live";
import { fits, lineInAttempt } from "./loglines";
import { clock, dateTime, goDuration, inWords, offset, parseDuration, shortDuration } from "./time";
import { timeline } from "./timeline";
import { loadClass, short, slots } from "./week";

describe("ansi", () => {
  it("splits a line where its style changes", () => {
    expect(spans("a \x1b[1;31mred\x1b[39m bold\x1b[0m z")).toEqual([
      { text: "a " },
      { text: "red", bold: true, color: "red" },
      { text: " bold", bold: true },
      { text: " z" },
    ]);
    expect(spans("\x1b[38;5;9mx\x1b[48;2;1;2;3my")).toEqual([
      { text: "x", color: "bright-red" },
      { text: "y", color: "bright-red" },
    ]);
  });
  it("drops other sequences, but never text", () => {
    expect(plain("\x1b[2Kdone\x1b]0;title\x07!\x1b[?25h")).toBe("done!");
    expect(plain("<b>&amp;</b>")).toBe("<b>&amp;</b>");
    expect(spans("\x1b[31")[0]?.text).not.toContain("\x1b");
  });
});

describe("cron", () => {
  it("finds fields and their positions", () => {
    expect(fields(" */5  2 * ")).toEqual([
      { text: "*/5", start: 1 },
      { text: "2", start: 6 },
      { text: "*", start: 8 },
    ]);
    expect(fieldAt("0 2 * * *", 2)).toBe(1);
    expect(fieldAt("0  2", 2)).toBe(-1);
  });
  it("reads the faulty fields from the server's message", () => {
    expect(
      faultyFields(
        "minute 61 is out of range 0-59 in field 1, column 1; day-of-week 9 is out of range 0-7 in field 5, column 9",
      ),
    ).toEqual([0, 4]);
    expect(faultyFields(undefined)).toEqual([]);
  });
  it("names fields by count and dialect", () => {
    expect(fieldNames(5, "standard")[0]).toBe("minute");
    expect(fieldNames(6, "standard")[0]).toBe("second");
    expect(fieldNames(7, "quartz").at(-1)).toBe("year");
  });
});

describe("time", () => {
  it("reads Go durations", () => {
    expect(parseDuration("1h30m")).toBe(5_400_000);
    expect(parseDuration("1.5s")).toBe(1500);
    expect(parseDuration("250ms")).toBe(250);
    for (const bad of ["", "5", "1 h", "h", "-1s", "1x"]) expect(parseDuration(bad)).toBeUndefined();
  });
  it("writes durations short", () => {
    expect([1, 12, 90, 91, 600].map((n) => inWords(n, "en"))).toEqual([
      "1 second",
      "12 seconds",
      "90 seconds",
      "2 minutes",
      "10 minutes",
    ]);
    expect([1, 12, 600].map((n) => inWords(n, "zh"))).toEqual(["1秒钟", "12秒钟", "10分钟"]);
    expect([85, 3210, 9960, 65_000, 3_600_000, 93_600_000, -500].map(shortDuration)).toEqual([
      "85ms",
      "3.2s",
      "10s",
      "1m 5s",
      "1h",
      "1d 2h",
      "-500ms",
    ]);
    expect(["10m0s", "1h0m0s", "1h30m0s", "90s", "0s", "10s"].map(goDuration)).toEqual([
      "10m",
      "1h",
      "1h30m",
      "90s",
      "0s",
      "10s",
    ]);
  });
  it("writes instants in a zone", () => {
    expect(dateTime("2026-03-29T00:30:00.000Z", "Europe/Berlin")).toBe("2026-03-29 01:30:00");
    expect(dateTime("2026-03-29T16:00:00.000Z", "Asia/Shanghai")).toBe("2026-03-30 00:00:00");
    expect([offset("2026-03-29T00:30:00Z", "Europe/Berlin"), offset("2026-03-29T01:30:00Z", "Europe/Berlin")]).toEqual([
      "GMT+1",
      "GMT+2",
    ]);
    expect(clock("2026-03-29T10:00:00Z", new Date("2026-03-29T12:00:00Z"), "UTC")).toBe("10:00:00");
    expect(clock("2026-03-30T10:00:00Z", new Date("2026-03-29T12:00:00Z"), "UTC")).toBe("03-30 10:00:00");
  });
});

describe("dictionaries", () => {
  const placeholders = (s: string) => [...s.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort();
  it("have the same placeholders", () => {
    for (const key of Object.keys(en) as (keyof typeof en)[])
      expect(placeholders(zh[key]), key).toEqual(placeholders(en[key]));
  });
  it("have no empty text", () => {
    for (const d of [en, zh]) for (const [key, text] of Object.entries(d)) expect(text.trim(), key).not.toBe("");
  });
});

describe("drafts", () => {
  it("contain only fields that the kind of schedule uses", () => {
    expect(tidySchedule({ kind: "fixed_rate", every: "5s", expr: "* * * * *", dialect: "quartz", jitter: "" })).toEqual(
      { kind: "fixed_rate", every: "5s" },
    );
  });
  it("contain either a handler or a script", () => {
    const d = emptyDraft("UTC");
    expect(tidy({ ...d, handler: "echo", script: undefined })).not.toHaveProperty("script");
    expect(tidy({ ...d, handler: "echo", script: { language: "sh", code: "true" } })).not.toHaveProperty("handler");
    expect(tidy({ ...d, shards: 3 })).not.toHaveProperty("shards");
  });
});

describe("timeline", () => {
  const at = (s: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, s)).toISOString();
  it("names the gaps between steps", () => {
    const attempt = { instance: "a", outcome: "failed", reason: "handler_error", message: "" };
    const entries = timeline({
      fire_time: at(0),
      due_at: at(20),
      created_at: at(0),
      attempt: 2,
      dispatched_at: at(20),
      started_at: at(21),
      finished_at: at(22),
      attempts: [
        { ...attempt, attempt: 1, dispatched_at: at(1), started_at: at(2), finished_at: at(5) },
        { ...attempt, attempt: 2, dispatched_at: at(20), started_at: at(21), finished_at: at(22) },
      ],
    });
    expect(entries.map((e) => e.step.kind)).toEqual([
      "fire",
      "dispatched",
      "started",
      "finished",
      "dispatched",
      "started",
      "finished",
    ]);
    expect(entries.map((e) => e.gap && `${e.gap.kind} ${e.gap.ms / 1000}`)).toEqual([
      undefined,
      "waited 1",
      "offered 1",
      "ran 3",
      "backoff 15",
      "offered 1",
      "ran 1",
    ]);
  });
});

describe("log lines", () => {
  const line = { n: 1_000_000_003, at: "", level: "error", attempt: 2, text: "\x1b[31mOut of Memory" };
  it("are filtered by text and level", () => {
    expect(fits(line, { text: "of mem", levels: [] })).toBe(true);
    expect(fits(line, { text: "", levels: ["info", "warn"] })).toBe(false);
    expect(fits(line, { text: "[31m", levels: [] })).toBe(false);
    expect(lineInAttempt(line.n)).toBe(3);
  });
});

describe("queries", () => {
  it("leave out empty values", () => {
    expect(search({ a: "", b: undefined, c: ["x", "y"], d: 0, e: "ü&" })).toBe("?c=x%2Cy&d=0&e=%C3%BC%26");
    expect(search({})).toBe("");
  });
});

describe("inTurn", () => {
  it("processes each item once, with a few at a time", async () => {
    let under = 0;
    let most = 0;
    const done: number[] = [];
    await inTurn([1, 2, 3, 4, 5, 6, 7], 3, async (n) => {
      most = Math.max(most, ++under);
      await Promise.resolve();
      under--;
      done.push(n);
    });
    expect(done.toSorted()).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(most).toBe(3);
  });
  it("starts no more items after it is stopped", async () => {
    const stop = new AbortController();
    const done: number[] = [];
    await inTurn(
      [1, 2, 3],
      1,
      async (n) => {
        done.push(n);
        if (n === 2) stop.abort();
      },
      stop.signal,
    );
    expect(done).toEqual([1, 2]);
  });
});

describe("clock changes", () => {
  const start = Date.parse("2026-01-15T00:00:00Z");
  const spring = Date.parse("2026-03-29T01:00:00Z");
  const autumn = Date.parse("2026-10-25T01:00:00Z");
  const nextOf =
    (...fires: string[]) =>
    async (after: number) =>
      fires.map((f) => Date.parse(f)).find((f) => f > after);
  const cron = (expr: string) => ({ kind: "cron" as const, expr });

  it("are found to the second", () => {
    expect(transitions("Europe/Berlin", start, start + 366 * 86_400_000).map((x) => x.at)).toEqual([spring, autumn]);
    expect(transitions("Asia/Shanghai", start, start + 366 * 86_400_000)).toEqual([]);
    expect(transitions("Australia/Lord_Howe", start, start + 366 * 86_400_000).map((x) => x.after - x.before)).toEqual([
      -1_800_000, 1_800_000,
    ]);
  });
  it("distinguish schedules with plain hours and minutes", () => {
    expect(fixedTimes("30,0 2 * * *", "standard")).toEqual([120, 150]);
    expect(fixedTimes("0 30 2 ? * MON", "quartz")).toEqual([150]);
    expect(fixedTimes("@daily", "standard")).toEqual([0]);
    for (const expr of ["*/5 2 * * *", "0 1-3 * * *", "@hourly"]) expect(fixedTimes(expr, "standard")).toBeUndefined();
  });
  it("move or merge fire times of a fixed schedule", async () => {
    expect(
      await clockChanges(
        cron("30 2 * * *"),
        "Europe/Berlin",
        start,
        nextOf("2026-03-29T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
      ),
    ).toEqual([
      { kind: "moved", day: "2026-03-29", from: "02:00", to: "03:00" },
      { kind: "once", day: "2026-10-25", from: "02:00", to: "03:00" },
    ]);
    expect(
      await clockChanges(
        cron("0 3 * * *"),
        "Europe/Berlin",
        start,
        nextOf("2026-03-29T01:00:00Z", "2026-10-25T02:00:00Z"),
      ),
    ).toEqual([]);
  });
  it("skip or repeat fire times of a schedule by elapsed time", async () => {
    expect(
      await clockChanges(
        cron("*/30 2 * * *"),
        "Europe/Berlin",
        start,
        nextOf("2026-03-22T01:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
      ),
    ).toEqual([
      { kind: "skipped", day: "2026-03-29", from: "02:00", to: "03:00" },
      { kind: "twice", day: "2026-10-25", from: "02:00", to: "03:00" },
    ]);
  });
});

describe("a job as YAML", () => {
  const draft = {
    ...emptyDraft("Asia/Shanghai"),
    group: "demo",
    name: "report",
    handler: "echo",
    param: "a\nb",
    children: [{ job_id: 7, on: "failure" as const }],
    version: 3,
  };
  it("is the same after writing and reading", () => {
    const text = toYaml(draft, (id) => (id === 7 ? "demo/send" : undefined));
    expect(text).toContain("job: demo/send");
    expect(text).not.toContain("start_deadline"); // a default
    const { children, ...fields } = fromYaml(text);
    expect(children).toEqual([{ job: "demo/send", on: "failure" }]);
    expect(draftFrom({ ...fields, children: [{ job_id: 7, on: "failure" }] }, 3)).toEqual(draft);
  });
  it("is read from a file with one job, with unknown fields", () => {
    expect(fromYaml("jobs:\n- {group: g, name: n, schedule: {kind: none}, colour: red}")).toEqual({
      group: "g",
      name: "n",
      schedule: { kind: "none" },
      colour: "red",
    });
  });
  it("is refused if a form cannot show it", () => {
    for (const text of [
      "",
      "a: [",
      "[]",
      "x",
      "name: 7\nschedule: {kind: none}",
      "name: a",
      "schedule: {kind: none}\ntags: x",
      "schedule: &a {kind: none}\nscript: *a",
      "schedule: {kind: none}\nchildren: [7]",
    ]) {
      expect(() => fromYaml(text), text).toThrow();
    }
    expect(() => fromYaml("name: 7\nschedule: {kind: none}")).toThrow(YamlFault);
    expect(() => fromYaml("name: 7\nschedule: {kind: none}")).toThrow("name: must be a string");
  });
});

describe("problems", () => {
  it("belong to a field and to its entries", () => {
    const e = new ApiError({
      title: "x",
      status: 422,
      errors: [
        { location: "children[0].job_id", message: "no such job" },
        { location: "name", message: "is taken" },
      ],
    });
    expect(e.at("children")).toBe("no such job");
    expect(e.at("child")).toBeUndefined();
    expect(e.elsewhere(["children"])).toEqual(["name: is taken"]);
  });
});

describe("grid of runs", () => {
  const now = new Date(2026, 2, 11, 12, 34, 56); // a Wednesday in the local time zone
  const ago = (ms: number) => new Date(now.getTime() - ms).toISOString();
  const [second, hour] = [1000, 3_600_000];
  it("has cells that match the time between runs", () => {
    const every = (ms: number) =>
      Array.from({ length: 100 }, (_, i) => ({ state: "succeeded" as const, at: ago(i * ms) }));
    expect([second, 60 * second, hour, 24 * hour, 500 * hour].map((ms) => grid(every(ms), [], now)?.unit)).toEqual([
      "seconds",
      "minutes",
      "hours",
      "days",
      "days",
    ]);
    expect(grid(every(24 * hour), [], now)?.rows).toHaveLength(14);
    expect(grid([], [], now)).toBeUndefined();
  });
  it("counts each run once, and marks a cell by its most important content", () => {
    const g = grid(
      [
        { state: "succeeded", at: ago(0) },
        { state: "failed", at: ago(second) },
        { state: "succeeded", at: ago(hour) },
        { state: "succeeded", at: ago(2 * hour) },
      ],
      [{ first: ago(4 * hour), last: ago(3 * hour), count: 7 }],
      now,
    );
    const cells = g?.rows.flatMap((r) => r.cells.filter((c) => c.mark !== "none")) ?? [];
    expect(cells.map((c) => [c.from.getHours(), c.runs, c.failed, c.missed, c.mark])).toEqual([
      [9, 0, 0, 7, "missed"],
      [10, 1, 0, 0, "succeeded"],
      [11, 1, 0, 0, "succeeded"],
      [12, 2, 1, 0, "failed"],
    ]);
  });
  it("starts weeks on Monday", () => {
    const g = grid(
      [
        { state: "succeeded", at: ago(0) },
        { state: "succeeded", at: ago(30 * hour) },
      ],
      [],
      now,
    );
    expect(g?.rows[0]?.cells.map((c) => [c.from.getDay(), c.mark])).toEqual([
      [1, "none"],
      [2, "succeeded"],
      [3, "succeeded"],
      [4, "none"],
      [5, "none"],
      [6, "none"],
      [0, "none"],
    ]);
  });
});

describe("graph of jobs", () => {
  const job = (id: number, ...children: number[]) => ({
    id,
    name: `j${id}`,
    enabled: true,
    children: children.map((c) => ({ id: c, on: "success" })),
  });
  const levels = (g: ReturnType<typeof layOut>) => Object.fromEntries(g.nodes.map((n) => [n.id, n.level]));
  it("has parents to the left and children to the right, in the last possible column", () => {
    const g = layOut(2, [job(1, 2), job(2, 3, 4), job(3, 4), job(4)]);
    expect(levels(g)).toEqual({ 1: 0, 2: 1, 3: 2, 4: 3 });
    expect(g.edges).toHaveLength(4);
    expect([g.levels, g.rows]).toEqual([4, 1]);
  });
  it("ends at cycles", () => {
    expect(levels(layOut(1, [job(1, 2), job(2, 1)]))).toMatchObject({ 1: expect.any(Number), 2: expect.any(Number) });
    expect(layOut(1, [job(1, 1)]).nodes).toHaveLength(1);
    expect(layOut(1, [job(1, 2), job(2, 3), job(3, 2)]).nodes).toHaveLength(3);
  });
});

describe("graph of jobs in a narrow window", () => {
  const job = (id: number, ...children: number[]) => ({
    id,
    enabled: true,
    children: children.map((c) => ({ id: c, on: "success" })),
  });
  const order = (here: number, ...jobs: ReturnType<typeof job>[]) =>
    stack(layOut(here, jobs), here).nodes.map((n) => `${"-".repeat(n.level)}${n.id}`);
  it("has one job in each row, and children below their parent", () => {
    expect(order(3, job(1, 3), job(2, 3), job(3, 4, 5), job(4, 6), job(5), job(6))).toEqual([
      "1",
      "2",
      "-3",
      "--4",
      "---6",
      "--5",
    ]);
  });
  it("has each job once, below a parent in the column before", () => {
    expect(order(1, job(1, 2, 3), job(2, 4), job(3, 2), job(4))).toEqual(["1", "-3", "--2", "---4"]);
    expect(order(1, job(1, 2), job(2, 3), job(3, 2))).toHaveLength(3);
  });
});

describe("lists with pushed changes", () => {
  const run = (id: string, state = "queued") => ({ id, state });
  it("have each run once, newest first", () => {
    const changed = new Map([
      ["b", run("b", "failed")],
      ["d", run("d")],
      ["a0", run("a0")],
    ]);
    expect(merge([run("c"), run("b"), run("a")], changed)).toEqual([
      run("d"),
      run("c"),
      run("b", "failed"),
      run("a0"),
      run("a"),
    ]);
    expect(merge([run("c"), run("b")], changed, false)).toEqual([run("c"), run("b", "failed")]);
  });
});

describe("changes", () => {
  it("contain the fields that differ", () => {
    expect(changedFields({ a: 1, b: { c: 1 }, version: 1 }, { a: 1, b: { c: 2 }, version: 2, d: 0 })).toEqual([
      "b",
      "d",
    ]);
    expect(changedFields(null, { a: 1 })).toEqual([]);
  });
});

describe("the week", () => {
  const cell = (at: string, planned: number) => ({ at, planned, runs: 0, succeeded: 0, failed: 0 });
  it("places cells by local time, and adds up both passes of a repeated hour", () => {
    const week = new Date(2026, 9, 19);
    const days = slots(
      week,
      [
        cell("2026-10-18T22:00:00Z", 1),
        cell("2026-10-25T00:00:00Z", 2),
        cell("2026-10-25T01:00:00Z", 4),
        cell("2026-10-25T23:00:00Z", 8),
      ],
      "Europe/Berlin",
    );
    expect(days[0]?.[0]?.planned).toBe(1);
    expect(days[6]?.[2]).toEqual({ from: "2026-10-25T00:00:00Z", planned: 6, runs: 0, failed: 0 });
    expect(days.flat().reduce((n, s) => n + (s?.planned ?? 0), 0)).toBe(7); // without the cell of the next week
  });
  it("ranks by orders of magnitude", () => {
    expect([0, 1, 60, 3600].map((n) => loadClass(n, 3600))).toEqual([0, 1, 3, 5]);
    expect(loadClass(1, 1)).toBe(5);
  });
  it("writes counts in four characters", () => {
    expect([7, 999, 1000, 3600, 9960, 864_000, 1_200_000].map(short)).toEqual([
      "7",
      "999",
      "1k",
      "3.6k",
      "10k",
      "864k",
      "1.2M",
    ]);
  });
});
