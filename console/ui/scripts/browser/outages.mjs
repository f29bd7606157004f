// Scenes of servers and roles that are missing. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { heading, scene } from "./scene.mjs";

/** The kinds, each with what the server sends and the beginning of the Chinese text. */
const troubles = [
  ["server_unavailable:postgres", "server_unavailable", { server: "postgres", reason: "read_only" }, "Postgres 不可用"],
  ["server_unavailable:nats", "server_unavailable", { server: "nats", reason: "" }, "NATS 不可用"],
  ["server_unavailable:jetstream", "jetstream_unavailable", {}, "JetStream 不接受消息"],
  ["server_unavailable:nats_servers", "nats_servers_silent", { silent: 1, servers: 3 }, "3 个 NATS 服务器中有 1 个"],
  ["postgres_blocked:locks", "postgres_blocked", { sessions: 4 }, "Postgres 中的一个事务"],
  ["postgres_connections:connections", "connections_taken", { percent: 95 }, "Postgres 的连接已占用 95%"],
  ["role_missing:scheduler", "role_missing", { role: "scheduler", processes: 0 }, "没有调度器在线"],
  ["role_missing:dispatcher", "role_missing", { role: "dispatcher", processes: 2 }, "没有分发器在工作"],
  ["process_missing:console", "processes_missing", { role: "console", missing: 1, processes: 2 }, "2 个控制台进程"],
];
const sentence = "An English sentence of the server.";
const detail = "db-1.internal:5432";

export function outages(stage) {
  for (const [locale, title] of [
    ["zh-CN", "概览"],
    ["en-GB", "Overview"],
  ])
    scene(
      stage,
      `missing servers and roles are explained in the reader's language, with the details for admins: ${locale}`,
      { as: "admin", locale, viewport: { width: 360, height: 740 } },
      async (page) => {
        await page.route("**/api/v1/attention", async (route) => {
          const answer = await route.fetch();
          const list = await answer.json();
          const items = troubles.map(([id, code, args]) => ({
            id,
            kind: id.split(":")[0],
            group: "",
            job_id: null,
            since: new Date().toISOString(),
            count: 1,
            text: `${sentence.slice(0, -1)}: ${detail}`,
            explanation: { code, args, text: sentence },
            detail,
            runbook_url: "https://runbooks.example.com/engine",
          }));
          await route.fulfill({ response: answer, json: { ...list, items } });
        });
        await page.goto("/");
        await heading(page, title);
        for (const [id, , , chinese] of troubles) {
          const row = page.locator(`[data-item="${id}"]`);
          const says = row.locator(".attention-says");
          await says.waitFor();
          const text = await says.innerText();
          assert.ok(text.startsWith(locale === "zh-CN" ? chinese : sentence), `${id}: ${text}`);
          await row.locator(".attention-helps").getByText(detail).waitFor();
          if (locale === "zh-CN") assert.ok(!text.includes("English"), `${id}: ${text}`);
          // The whole text is visible, because a phone has no tooltips.
          const cut = await says.evaluate((e) => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight);
          assert.equal(cut, false, `${id}: the text is cut`);
        }
      },
    );
}
