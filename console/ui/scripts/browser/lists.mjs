// Scenes of lists that do not move under the reader. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { scene } from "./scene.mjs";

export function lists(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "new runs wait while the pointer is in the list, and a live list does not shift the page",
    { as: "admin", viewport: { width: 1280, height: 720 } },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "comes-and-goes",
        group: "demo",
        handler: "echo",
        param: "a",
        block: "parallel",
        schedule: { kind: "none" },
      });
      const run = async (n) => {
        for (let i = 0; i < n; i++) await call("POST", `/jobs/${job.id}/trigger`, {});
      };
      await run(30);
      await page.goto(`/runs?job_id=${job.id}`);
      await page.getByText("Live", { exact: true }).waitFor();
      await page.locator("tbody tr").nth(29).waitFor();
      await until("the ends of the runs", async () => (await page.locator("tbody .state-succeeded").count()) === 30);
      const first = page.locator("tbody tr").first();
      const link = await first.locator("[data-row]").getAttribute("href");
      await page.evaluate(() => {
        globalThis.shift = 0;
        new PerformanceObserver((l) => l.getEntries().forEach((e) => (globalThis.shift += e.value))).observe({
          type: "layout-shift",
        });
      });
      // The pointer is in the list: new runs wait.
      await first.hover();
      await run(3);
      const waiting = page.getByRole("button", { name: "3 new" });
      await waiting.waitFor();
      assert.equal(
        await first.locator("[data-row]").getAttribute("href"),
        link,
        "the list has moved under the pointer",
      );
      assert.equal(await page.locator("tbody tr").count(), 30);
      // The pointer leaves: they appear.
      await page.getByRole("heading", { level: 1 }).hover();
      await page.locator("tbody tr").nth(32).waitFor();
      await waiting.waitFor({ state: "detached" });
      // The focus in the list holds them too.
      await first.locator("[data-row]").focus();
      await run(2);
      await page.getByRole("button", { name: "2 new" }).click();
      await page.locator("tbody tr").nth(34).waitFor();
      await page.evaluate(() => document.activeElement.blur());
      // Without pointer and focus in the list, runs appear one after the other, and no element moves.
      for (let i = 0; i < 20; i++) {
        await run(1);
        await page
          .locator("tbody tr")
          .nth(35 + i)
          .waitFor();
      }
      const shift = await page.evaluate(() => globalThis.shift);
      assert.ok(shift < 0.1, `the page has shifted by ${shift}`);
    },
  );
}
