// Scenes of runs: logs and live lists. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { until } from "./belfry.mjs";
import { scene } from "./scene.mjs";

export function runs(stage) {
  const call = (...of) => stage.call(...of);
  /** script creates a job with a script and without a schedule. */
  const script = (name, code) =>
    call("POST", "/jobs", { name, group: "demo", schedule: { kind: "none" }, script: { language: "sh", code } });

  scene(stage, "a log is followed during the run, and the run is killed", { as: "admin" }, async (page) => {
    const job = await script(
      "talker",
      'i=0; while :; do i=$((i+1)); echo "line $i of many"; echo "oops $i" >&2; sleep 0.1; done',
    );
    await page.goto(`/jobs/${job.id}`);
    await page.getByRole("button", { name: "Run now" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
    await page.waitForURL(/\/runs\//);
    const log = page.getByRole("log");
    await log.getByText("line 3 of many", { exact: true }).waitFor();
    await log.getByText("line 9 of many", { exact: true }).waitFor();
    await page.getByText("Live", { exact: true }).waitFor();
    await page.getByRole("button", { name: "stderr" }).click();
    await log.getByText("oops 3", { exact: true }).waitFor();
    await log.getByText("line 3 of many", { exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "stderr" }).click();
    await page.getByLabel("Search the log").fill("line 5 of");
    await log.getByText("line 5 of many", { exact: true }).waitFor();
    await log.getByText("line 3 of many", { exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Kill" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
    await page.locator("h1 .state-cancelled").waitFor();
    await page.getByText("Complete", { exact: true }).waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download" }).click(),
    ]);
    assert.match(readFileSync(await download.path(), "utf8"), /line 5 of many/);
  });

  scene(
    stage,
    "the list of runs and the overview show changes until they are paused",
    { as: "admin" },
    async (page) => {
      const job = await script("long", "sleep 600");
      const trigger = async () => (await call("POST", `/jobs/${job.id}/trigger`, {})).run_ids[0];
      await call("PATCH", `/jobs/${job.id}`, { block: "parallel" });
      // The timers that read the lists every 30 seconds are switched off, so every change on the page was pushed.
      await page.addInitScript(() => {
        const every = globalThis.setInterval;
        globalThis.setInterval = (f, ms, ...more) => every(f, ms >= 30_000 ? 2 ** 31 - 1 : ms, ...more);
      });
      await page.goto(`/runs?job_id=${job.id}`);
      await page.getByText("Live", { exact: true }).waitFor();
      await trigger();
      await page.locator("tbody .state-running").waitFor();
      await trigger();
      await page.locator("tbody .state-running").nth(1).waitFor();
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByText("Paused", { exact: true }).waitFor();
      const third = await trigger();
      await until("the third run", async () => (await call("GET", `/runs/${third}`)).state === "running");
      assert.equal(await page.locator("tbody tr").count(), 2, "a paused list shows a change");
      await page.getByRole("button", { name: "Resume" }).click();
      await page.locator("tbody .state-running").nth(2).waitFor();

      // All runs that match the filters are killed at once.
      await page.locator(".bulk-bar").getByRole("button", { name: "Kill" }).click();
      const dialog = page.getByRole("dialog", { name: "Kill all runs that match the filters?" });
      await dialog.getByRole("button", { name: "Kill" }).click();
      await dialog.getByText("Done: 3, skipped: 0, failed: 0").waitFor();
      await dialog.getByRole("button", { name: "Close" }).last().click();
      await page.locator("tbody .state-cancelled").nth(2).waitFor();

      await page.goto("/?span=1h");
      await page.getByText("Live", { exact: true }).waitFor();
      const finished = page.locator(".tile", { hasText: "Success rate" }).locator(".tile-note");
      const before = await finished.innerText();
      await page.waitForFunction(
        (before) => [...document.querySelectorAll(".tile-note")].every((n) => n.textContent !== before),
        before,
      );
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByText("Paused", { exact: true }).waitFor();
    },
  );

  scene(
    stage,
    "a log of 100,000 lines can be searched and scrolled, and the page contains only the visible lines",
    { as: "admin" },
    async (page) => {
      const job = await script("verbose", "seq 1 100000");
      const {
        run_ids: [run],
      } = await call("POST", `/jobs/${job.id}/trigger`, {});
      await page.goto(`/runs/${run}`);
      await page.getByText("100000 lines", { exact: true }).waitFor();
      const log = page.getByRole("log");
      await log.getByText("100000", { exact: true }).last().waitFor(); // the view follows the end
      assert.ok((await log.locator(".log-line").count()) < 200, "the page contains lines that are not visible");
      await log.press("Home");
      await log.locator(".log-text").getByText("1", { exact: true }).waitFor();
      await page.getByLabel("Search the log").fill("7777");
      await page.getByText("19 of 100000 lines").waitFor();
    },
  );
}
