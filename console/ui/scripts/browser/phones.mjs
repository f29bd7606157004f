// Scenes of windows as narrow as a phone. They are part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { historyOf } from "./history.mjs";
import { misfits } from "./misfits.mjs";
import { heading, ready, scene } from "./scene.mjs";

const phone = { width: 360, height: 740 };

export function phones(stage) {
  scene(
    stage,
    "on a phone, the grid of runs fits into the window, however often the job runs",
    { as: "admin", viewport: phone },
    async (page) => {
      const { job } = await historyOf(stage);
      let every;
      await page.route("**/api/v1/runs?*", async (route) => {
        const answer = await route.fetch();
        const list = await answer.json();
        for (const [i, run] of list.items.entries()) run.due_at = new Date(Date.now() - i * every * 1000).toISOString();
        await route.fulfill({ response: answer, json: list });
      });
      for (const [unit, seconds, columns] of [
        ["seconds", 15, 20],
        ["minutes", 240, 12],
        ["hours", 3600, 24],
        ["days", 86_400, 7],
      ]) {
        every = seconds;
        await page.goto(`/jobs/${job.id}?tab=history`);
        const grid = page.locator(`.run-grid-${unit}`);
        await grid.locator("a.grid-cell").first().waitFor();
        await grid.scrollIntoViewIfNeeded();
        const box = await grid.evaluate((table) => {
          const box = table.closest(".table-box");
          const labels = [...table.querySelectorAll("thead span")].map((span) => {
            const range = document.createRange();
            range.selectNodeContents(span);
            return range.getBoundingClientRect();
          });
          return {
            over: box.scrollWidth - box.clientWidth,
            columns: table.tBodies[0].rows[0].cells.length - 1,
            narrowest: Math.min(...[...table.querySelectorAll("a.grid-cell")].map((c) => c.offsetWidth)),
            lowest: Math.min(...[...table.querySelectorAll("a.grid-cell")].map((c) => c.offsetHeight)),
            overlaps: labels.filter(
              (l, i) => l.width > 0 && labels.slice(0, i).some((m) => m.width && m.right > l.left),
            ).length,
          };
        });
        assert.deepEqual(
          [box.over, box.columns, box.overlaps],
          [0, columns, 0],
          `${unit}: more width than the box has, columns, and labels that overlap`,
        );
        assert.ok(box.narrowest >= 8 && box.lowest >= 24, `${unit}: cells of ${box.narrowest} by ${box.lowest} px`);
        assert.deepEqual(await page.evaluate(misfits), []);
      }
    },
  );

  scene(
    stage,
    "on a phone, the graph of jobs goes from top to bottom, fits into the window, and its jobs are links",
    { as: "admin", viewport: phone },
    async (page) => {
      const { job } = await historyOf(stage);
      await stage.call("POST", "/jobs", {
        name: "parent-of-the-reconciliation-of-all-settlement-files",
        group: "demo",
        handler: "echo",
        schedule: { kind: "none" },
        children: [{ job_id: job.id, on: "success" }],
      });
      await page.goto(`/jobs/${job.id}?tab=definition`);
      const graph = page.locator(".job-graph");
      await until("the parent and the children", async () => (await graph.locator("a").count()) === 4);
      const drawn = () =>
        graph.evaluate((svg) => ({
          over: svg.parentElement.scrollWidth - svg.parentElement.clientWidth,
          boxes: [...svg.querySelectorAll(".graph-node")].map((r) => r.getBoundingClientRect().toJSON()),
          outside: [...svg.querySelectorAll("text")].filter(
            (text) => text.getBoundingClientRect().right > svg.getBoundingClientRect().right,
          ).length,
        }));
      const narrow = await drawn();
      assert.deepEqual([narrow.over, narrow.outside], [0, 0], "width beyond the box, texts outside of the drawing");
      const boxes = narrow.boxes.sort((a, b) => a.top - b.top);
      assert.ok(
        boxes.every((b, i) => b.width >= 200 && b.right <= phone.width && (i === 0 || b.top >= boxes[i - 1].bottom)),
        `the jobs are at ${JSON.stringify(boxes)}`,
      );
      assert.deepEqual(await page.evaluate(misfits), []);
      await graph.getByRole("link", { name: /^archive-of/ }).click();
      await heading(page, /^archive-of/);
      await page.goBack();
      // In a wide window, the graph goes from left to right.
      await page.setViewportSize({ width: 1440, height: 900 });
      await until(
        "the wide graph",
        async () =>
          new Set((await drawn()).boxes.map((b) => b.left)).size === 3 && (await drawn()).boxes[0].width < 200,
      );
      assert.equal((await drawn()).over, 0);
    },
  );

  scene(
    stage,
    "a list without matches offers to clear the filters, in line with its text",
    { as: "admin", viewport: phone },
    async (page) => {
      for (const path of ["/jobs?q=no-such-job-anywhere", "/runs?instance=no-such-instance"]) {
        await page.goto(path);
        await ready(page);
        const empty = page.locator(".empty");
        const clear = empty.getByRole("button", { name: "Clear the filters" });
        await clear.waitFor();
        const left = (locator) =>
          locator.evaluate((e) => {
            const range = document.createRange();
            range.selectNodeContents(e);
            return Math.round(range.getBoundingClientRect().left);
          });
        assert.equal(await left(clear), await left(empty.locator("p").first()), path);
        await clear.click();
        await empty.waitFor({ state: "detached" });
      }
    },
  );

  scene(
    stage,
    "on a phone, most filters of the jobs open on demand, so that the first jobs are on the first half of the screen",
    { as: "admin", viewport: phone },
    async (page) => {
      await historyOf(stage);
      await page.goto("/jobs");
      await ready(page);
      const first = () => page.locator("tbody tr").first().boundingBox();
      const group = page.getByRole("textbox", { name: "Group" });
      const { y } = await first();
      assert.ok(y < phone.height / 2, `the first job is at ${y} px`);
      assert.equal(await group.count(), 0);
      await page.getByRole("button", { name: "More filters" }).click();
      await group.waitFor();
      await page.getByRole("button", { name: "Disabled", exact: true }).click();
      await page.waitForURL(/enabled=false/);
      await page.getByRole("button", { name: "Fewer filters" }).click();
      await group.waitFor({ state: "detached" });
      // A filter that is set is shown, whoever set it.
      await page.goto("/jobs?group=demo");
      await ready(page);
      await group.waitFor();
      assert.equal(await group.inputValue(), "demo");
    },
  );

  scene(
    stage,
    "on a phone, the lists of bulk actions and of calendars show what a wide window has in columns",
    { as: "admin", viewport: phone },
    async (page) => {
      const { failing } = await historyOf(stage);
      const { id } = await stage.call("POST", "/runs/bulk", {
        action: "retry",
        filter: { job_id: failing.id, state: "failed" },
      });
      await page.goto("/bulk");
      const row = page.locator("tbody tr").filter({ has: page.locator(`a[href="/bulk/${id}"]`) });
      await row.locator(".narrow-only").getByText(`Job: ${failing.name}`).waitFor();
      await row.getByText(/^1 of 1 · admin · \d\d:\d\d:\d\d$/).waitFor();
      assert.deepEqual(await page.evaluate(misfits), []);
      await stage.call("POST", "/calendars", {
        name: "seen-on-a-phone",
        weekdays: ["saturday", "sunday"],
        dates: [`${new Date().getFullYear() + 1}-01-01`],
      });
      await page.goto("/calendars");
      const calendar = page.locator("tbody tr").filter({ hasText: "seen-on-a-phone" });
      const says = calendar.getByText(/^Sat, Sun · Dates off: 1 · \d{4}-01-01$/);
      await says.waitFor();
      const whole = await says.evaluate((e) => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth);
      assert.ok(whole, "the days off are cut");
      assert.deepEqual(await page.evaluate(misfits), []);
    },
  );
}
