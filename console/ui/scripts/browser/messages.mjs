// Scenes in Chinese about the messages that the engine writes when it ends runs.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { until } from "./belfry.mjs";
import { ready, scene } from "./scene.mjs";

/** english matches a word of a sentence. Names, ids and the words of handlers are removed before. */
const english = /[a-z]{2,}/i;

export function messages(stage) {
  scene(
    stage,
    "in Chinese, runs that the engine ended show no English sentence",
    { as: "admin", locale: "zh-CN" },
    async (page) => {
      const { call } = stage;
      const { runs, names } = await endRuns(stage);
      const words = (text) =>
        names.reduce(
          (rest, n) => rest.replaceAll(n, ""),
          text.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, ""),
        );
      const chinese = (where, text) => {
        assert.match(text, /[\u4e00-\u9fff]/, `${where}: ${text}`);
        assert.doesNotMatch(words(text), english, `${where}: ${text}`);
      };
      for (const [what, { id, says, count = 1 }] of Object.entries(runs)) {
        await page.goto(`/runs/${id}`);
        await ready(page);
        const blocks = page.locator(".message-block");
        await blocks.nth(count - 1).waitFor();
        const shown = await blocks.allInnerTexts();
        assert.equal(shown.length, count, `${what}: ${shown}`);
        for (const text of shown) chinese(what, text);
        assert.match(shown.join("\n"), says, what);
        const run = await call("GET", `/runs/${id}`);
        assert.match(run.message, english, `${what}: the API says ${run.message}`); // the API keeps the English sentence
        await page.goto(`/runs?job_id=${run.job_id}`);
        await ready(page);
        for (const text of await page.locator("td.message").allInnerTexts())
          if (text) chinese(`${what}, in the list`, text);
      }
      // Both groups have lost their executors, and the failures of their jobs belong to them.
      for (const group of ["mortal", "empty"]) {
        await page.goto(`/?group=${group}`);
        await ready(page);
        const item = page.locator(`[data-item="group_without_executors:${group}"]`);
        await item.waitFor();
        chinese("the overview", await item.innerText());
      }
    },
  );
}

/** endRuns makes runs that the engine ends. It returns their ids, and what their pages say, with the names in these texts. */
async function endRuns(stage) {
  const { call } = stage;
  const none = { kind: "none" };
  const job = (name, rest) =>
    call("POST", "/jobs", {
      name: `ended-${name}`,
      group: "demo",
      schedule: none,
      handler: "sleep",
      param: "600s",
      ...rest,
    });
  const trigger = async (j) => (await call("POST", `/jobs/${j.id}/trigger`, {})).run_ids[0];
  const becomes = (id, state) =>
    until(`${id} to be ${state}`, async () => (await call("GET", `/runs/${id}`)).state === state, 300);
  const started = async (j) => {
    const id = await trigger(j);
    await becomes(id, "running");
    return id;
  };

  const { token } = await call("POST", "/groups", { name: "mortal" });
  await call("POST", "/groups", { name: "empty" });
  const child = spawn(
    stage.binary,
    ["executor", "--group", "mortal", "--instance", "mortal-1", "--nats-url", stage.nats],
    { env: { ...process.env, BELFRY_TOKEN: token }, stdio: ["ignore", "ignore", "pipe"] },
  );
  let said = "";
  child.stderr.on("data", (d) => (said += d));
  let lost, retried;
  try {
    await until("the executor", async () => {
      assert.equal(child.exitCode, null, said);
      return (await call("GET", "/groups/mortal")).instances > 0;
    });
    lost = await started(await job("lost", { group: "mortal" }));
    retried = await started(
      await job("retried", { group: "mortal", retries: 1, retry_backoff: { initial: "1s" }, start_deadline: "1s" }),
    );
  } finally {
    child.kill("SIGKILL");
  }

  const discarding = await job("discarded", { block: "discard_later" });
  const killed = await started(discarding);
  const discarded = await trigger(discarding);
  await becomes(discarded, "skipped");
  await call("POST", `/runs/${killed}/kill`, {});
  await becomes(killed, "cancelled");

  const covering = await job("covered", { block: "cover_early" });
  const covered = await started(covering);
  const last = await trigger(covering);
  await becomes(covered, "cancelled");
  await becomes(last, "running");
  await call("POST", `/runs/${last}/kill`, {});

  const unserved = await trigger(await job("unserved", { group: "empty", start_deadline: "1s" }));
  await becomes(unserved, "failed");
  await becomes(lost, "failed");
  await becomes(retried, "failed");
  return {
    runs: {
      discarded: { id: discarded, says: /尚未结束/ },
      killed: { id: killed, says: /由 admin 终止/ },
      covered: { id: covered, says: /覆盖/ },
      unserved: { id: unserved, says: /没有提供处理器 sleep 的实例/ },
      lost: { id: lost, says: /实例 mortal-1 已失联/ },
      retried: { id: retried, says: /没有提供处理器 sleep 的实例[^]*实例 mortal-1 已失联/, count: 2 },
    },
    // The handler sleep returns the cause of its end, an error of the SDK.
    names: ["executor: the run was killed", "mortal-1", "mortal", "empty", "sleep", "admin"],
  };
}
