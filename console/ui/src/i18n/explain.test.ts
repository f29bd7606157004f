import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { explain, message, type Code, type Explanation, type Values } from "./explain";
import { zhExplain } from "./explain.zh";

const contract = JSON.parse(readFileSync(new URL("../../../api/testdata/openapi.json", import.meta.url), "utf8")) as {
  components: { schemas: { Explanation: { properties: { code: { enum: Code[] } } } } };
};
const codes = contract.components.schemas.Explanation.properties.code.enum;

const values = {
  language: "python",
  more: 2,
  slots: [{ instance: "a", taken: 1, capacity: 4 }],
  passed: [
    { instance: "b", answered: true, runs: 3 },
    { instance: "c", answered: false },
  ],
  instance: "a",
  reason: "full",
  route: "any",
  instances: 3,
  taken: 1,
  capacity: 4,
  turn: 5,
  number: 2,
  key: "k",
  runs: 7,
  shard: 0,
  total: 3,
  full: 1,
  avoided: "z",
  misfire: "fire_all",
  latest: 100,
  tolerance_ms: 5000,
  late_ms: 3_723_000,
  version: 2,
  pauses: [{ group: "web", from: "2026-01-01", to: "", by: "ann", reason: "" }],
  run: "019a",
  limit: 1000,
  by: "ann",
  group: "web",
  handler: "echo",
  deadline_ms: 1500,
  bytes: 900,
  step_ms: 30_000,
  server: "postgres",
  silent: 1,
  servers: 3,
  sessions: 4,
  percent: 95,
  role: "dispatcher",
  missing: 1,
  processes: 2,
  from: "2026-01-01",
  to: "2026-01-02",
};

/** Arguments of codes whose names have another meaning elsewhere: here from and to are versions. */
const versions: Partial<Record<Code, object>> = {
  job_edited: { from: 1, to: 2, at: "2026-01-01" },
  script_edited: { from: 1, to: 2 },
};

test("every code of the contract has an English and a Chinese text", () => {
  expect(Object.keys(zhExplain).sort()).toEqual([...codes].sort());
  for (const code of codes.filter((c) => c !== "text")) {
    for (const args of [{ ...values, ...versions[code] }, {}]) {
      const zh = explain(zhExplain, { code, args, text: "the English sentence" });
      expect(zh, code).toMatch(/[\u4e00-\u9fff]/);
      expect(zh, code).not.toMatch(/undefined|NaN|\[object|English/);
      expect(explain(undefined, { code, args, text: "the English sentence" })).toBe("the English sentence");
    }
  }
});

test("explanations show their values", () => {
  expect(explain(zhExplain, { code: "no_room", args: values, text: "" })).toBe(
    "没有空闲槽位：a 已占用 1/4，另有 2 个实例",
  );
  expect(explain(zhExplain, { code: "first", args: { instances: 2, full: 1, avoided: "z" }, text: "" })).toBe(
    "按名称排序，2 个实例中的第一个；3 个实例中有 1 个没有空闲槽位；避开了之前执行过它的 z",
  );
  expect(explain(zhExplain, { code: "no_scheduler", args: values, text: "" })).toBe(
    "调度器未能在到期后 5 秒内处理（最多迟了 1 小时 2 分 3 秒）；执行器组 web 由 ann 暂停，自 2026-01-01 起；按策略补跑最近 100 次",
  );
});

test("missing servers and roles are named in Chinese, with the values and the known reasons", () => {
  const zh = (code: Code, args: Values) => explain(zhExplain, { code, args, text: "" });
  expect(zh("server_unavailable", { server: "postgres", reason: "read_only" })).toMatch(
    /^Postgres 不可用，或不接受写入：它是备库，或处于只读状态。/,
  );
  expect(zh("server_unavailable", { server: "nats", reason: "" })).toMatch(/^NATS 不可用。/);
  expect(zh("nats_servers_silent", { silent: 1, servers: 3 })).toMatch(/^3 个 NATS 服务器中有 1 个没有响应。/);
  expect(zh("role_missing", { role: "scheduler", processes: 0 })).toMatch(/^没有调度器在线。不会触发任何任务。/);
  expect(zh("role_missing", { role: "dispatcher", processes: 2 })).toMatch(
    /^没有分发器在工作，尽管有 2 个进程连接到了 Postgres。结果/,
  );
  expect(zh("processes_missing", { role: "console", missing: 1, processes: 2 })).toMatch(
    /^2 个控制台进程中有 1 个不在线。/,
  );
});

test("a pause of a job names no group", () => {
  const pauses = [{ group: "", from: "2026-01-01", to: "2026-01-02", by: "ann", reason: "disks", job: true }];
  expect(explain(zhExplain, { code: "job_paused", args: { misfire: "skip", pauses }, text: "" })).toBe(
    "任务由 ann 暂停，时间为 2026-01-01 至 2026-01-02（disks）；按策略不补跑",
  );
});

test("what only its sentence explains, and what a newer server explains, shows the sentence", () => {
  expect(explain(zhExplain, { code: "text", args: {}, text: "as it was" })).toBe("as it was");
  expect(explain(zhExplain, { code: "newer" as Code, args: {}, text: "as it is" })).toBe("as it is");
});

// The texts are those of package explain, which writes them in alerts.
const messages = JSON.parse(
  readFileSync(new URL("../../../../internal/explain/testdata/messages.zh.json", import.meta.url), "utf8"),
) as (Explanation & { zh: string })[];

test("messages of the engine are translated", () => {
  for (const { zh, ...part } of messages) {
    expect(message(zhExplain, { message: part.text, message_parts: [part] })).toBe(zh);
    expect(message(undefined, { message: part.text, message_parts: [part] })).toBe(part.text);
  }
});

test("the handler's words stay as they are, alone and after the reason of a kill", () => {
  const killed: Explanation = { code: "killed_by", args: { by: "ann" }, text: "killed by ann" };
  const own: Explanation = { code: "text", args: {}, text: "exit status 3\nas it said" };
  const died: Explanation = { code: "instance_died", args: { instance: "i1" }, text: "instance i1 died" };
  expect(message(zhExplain, { message: "exit status 3" })).toBe("exit status 3");
  expect(
    message(zhExplain, { message: "killed by ann: exit status 3\nas it said", message_parts: [killed, own] }),
  ).toBe("由 ann 终止：exit status 3\nas it said");
  expect(message(zhExplain, { message: "killed by ann: instance i1 died", message_parts: [killed, died] })).toBe(
    "由 ann 终止：实例 i1 已失联",
  );
  expect(message(undefined, { message: "killed by ann: instance i1 died", message_parts: [killed, died] })).toBe(
    "killed by ann: instance i1 died",
  );
});
