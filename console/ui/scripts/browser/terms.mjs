// Scenes of pages with real history: accessibility, and Chinese terms. They are part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { historyOf } from "./history.mjs";
import { axeFaults, axeSource, ready, scene } from "./scene.mjs";

export function terms(stage) {
  scene(
    stage,
    "what needs attention, the health of jobs, the week, the graph and the editor have no serious accessibility faults, with real history, in light and dark",
    { as: "admin" },
    async (page, context) => {
      const { job, coded, failing } = await historyOf(stage);
      const cdp = await context.newCDPSession(page);
      const faults = [];
      for (const [path, part, act] of [
        ["/", ".attention-row"],
        [
          "/",
          ".acked",
          async () => {
            await page.getByText(/^Acknowledged: /).click();
            await page
              .getByRole("button", { name: /^Acknowledge / })
              .first()
              .click();
            await page.getByRole("dialog").waitFor();
          },
        ],
        ["/jobs?sort=failing_since", "td.mid .failing-link"],
        [`/jobs/${failing.id}`, ".health-failing"],
        ["/week", ".slot"],
        [`/jobs/${job.id}?tab=definition`, ".job-graph"],
        [`/jobs/${coded.id}/edit`, ".cm-line span"],
      ]) {
        await page.goto(path);
        await ready(page);
        await page.locator(part).first().waitFor();
        await act?.();
        await cdp.send("Runtime.evaluate", { expression: axeSource() });
        for (const colorScheme of ["light", "dark"]) {
          await page.emulateMedia({ colorScheme });
          await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor();
          faults.push(...(await axeFaults(page, `${path} ${colorScheme}`)));
        }
        await page.emulateMedia({ colorScheme: "light" });
      }
      assert.equal(faults.length, 0, faults.join("\n"));
    },
  );

  scene(stage, "in Chinese, a term is the same everywhere", { as: "admin", locale: "zh-CN" }, async (page) => {
    const { job, run } = await historyOf(stage);
    const seen = [];
    for (const path of ["/", "/account", `/jobs/${job.id}`, `/runs/${run.id}`, "/jobs/new"]) {
      await page.goto(path);
      await ready(page);
      if (path === "/jobs/new") await page.getByRole("button", { name: "显示并修改" }).click();
      if (path.startsWith("/runs/")) await page.getByText("日志完整", { exact: true }).waitFor();
      seen.push(await page.locator("body").innerText());
    }
    const all = seen.join("\n");
    for (const term of ["您", "抖动", "台账", "日志已完整"]) assert.ok(!all.includes(term), `the page says ${term}`);
    for (const term of ["随机延迟", "错过记录"]) assert.ok(all.includes(term), `no page says ${term}`);
  });
}
