// Scenes of imports, of jobs as YAML, and of changes of several jobs. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { heading, scene } from "./scene.mjs";

export function changes(stage) {
  const call = (...of) => stage.call(...of);
  const byHand = (name, more) =>
    call("POST", "/jobs", { name, group: "demo", handler: "echo", schedule: { kind: "none" }, ...more });

  scene(
    stage,
    "an import shows the changes before it makes them, and an export has all jobs",
    { as: "admin", refusals: [422] },
    async (page) => {
      const there = await byHand("imported-before", { param: "the old param" });
      await page.goto("/jobs");
      const menu = page.getByRole("button", { name: "Export, import" });
      await menu.click();
      await page.getByRole("menuitem", { name: "Import…" }).click();
      const dialog = page.getByRole("dialog", { name: "Import" });
      const check = dialog.getByRole("button", { name: "Show what would change" });
      await dialog
        .getByLabel("YAML")
        .fill("group: demo\nname: imported\nhandler: echo\nschedule: {kind: cron, expr: 61 2 * * *}\n");
      await check.click();
      await dialog.getByRole("alert").getByText("schedule.expr").waitFor();
      await dialog
        .getByLabel("YAML")
        .fill(
          "group: demo\nname: imported\nhandler: echo\nschedule: {kind: none}\n---\ngroup: demo\nname: imported-before\nhandler: echo\nparam: the new param\nschedule: {kind: none}\n",
        );
      await check.click();
      await dialog.getByText("Would create 1 and change 1; 0 unchanged.").waitFor();
      const change = dialog.locator(".difference", { hasText: "demo/imported-before" });
      await change.locator("del").getByText("the old param").waitFor();
      await change.locator("ins").getByText("the new param").waitFor();
      assert.equal((await call("GET", `/jobs/${there.id}`)).param, "the old param", "showing the changes has made one");
      await dialog.getByRole("button", { name: "Import 2 changes" }).click();
      await dialog.getByText("Created 1, changed 1; 0 unchanged.").waitFor();
      await dialog.getByRole("button", { name: "Close" }).last().click();
      await page.getByRole("link", { name: "imported", exact: true }).waitFor();
      assert.equal((await call("GET", `/jobs/${there.id}`)).param, "the new param");
      await menu.click();
      const [file] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("menuitem", { name: "Export all as YAML" }).click(),
      ]);
      assert.match(file.suggestedFilename(), /\.yaml$/);
      assert.match(readFileSync(await file.path(), "utf8"), /name: imported-before\n(.*\n)+? +param: the new param/);
    },
  );

  scene(
    stage,
    "a job is edited as YAML, faults are shown, and the form shows the same job",
    { as: "admin", refusals: [422] },
    async (page) => {
      const job = await byHand("as-yaml", { param: "as it was" });
      await page.goto(`/jobs/${job.id}/edit`);
      await page.getByRole("radiogroup", { name: "Edit as" }).getByText("YAML").click();
      const editor = page.getByRole("textbox", { name: "YAML" });
      await editor.getByText("param: as it was").waitFor();
      const write = async (text) => {
        await editor.click();
        await page.keyboard.press("Control+a");
        await editor.evaluate((el, text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          el.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }, text);
      };
      const save = page.getByRole("button", { name: "Save", exact: true });
      const status = page.locator(".yaml-tab").getByRole("status");
      await write("group: demo\nname: [as-yaml\n");
      await status.waitFor();
      assert.ok(await save.isDisabled(), "malformed YAML can be saved");
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: fixed_rate, every: 3}\n");
      await status.getByText("schedule.every: must be a string; put it in quotes").waitFor();
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: cron, expr: 0 25 * * *}\nretries: 2\n");
      await status.waitFor({ state: "detached" });
      await save.click();
      await page.getByRole("alert").getByText("schedule.expr").waitFor();
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: fixed_rate, every: 3h}\nretries: 2\n");
      await page.getByRole("radiogroup", { name: "Edit as" }).getByText("Form").click();
      assert.equal(await page.getByLabel("Every", { exact: true }).inputValue(), "3h");
      await save.click();
      await page.waitForURL(`/jobs/${job.id}`);
      await heading(page, "as-yaml");
      const saved = await call("GET", `/jobs/${job.id}`);
      assert.deepEqual([saved.schedule.every, saved.retries, saved.param], ["3h", 2, ""]);
    },
  );

  scene(
    stage,
    "several jobs are changed at once, and a job that cannot be changed is named",
    { as: "admin", refusals: [404] },
    async (page) => {
      const jobs = await Promise.all(
        [1, 2, 3].map((n) =>
          byHand(`several-${n}`, { tags: ["several"], schedule: { kind: "fixed_rate", every: "1h" } }),
        ),
      );
      await page.goto("/jobs?tag=several");
      await page.locator("[data-row]").nth(2).waitFor();
      await page.getByLabel("Select all in the list").check();
      await page.getByLabel("Select several-3").uncheck();
      await page.getByText("2 selected").waitFor();
      await page.locator(".bulk-bar").getByRole("button", { name: "Disable" }).click();
      const dialog = page.getByRole("dialog", { name: "Disable 2 jobs?" });
      await dialog.getByRole("listitem").nth(1).waitFor();
      await dialog.getByRole("button", { name: "Disable 2" }).click();
      await dialog.getByText("2 of 2", { exact: true }).waitFor();
      assert.equal(await dialog.getByRole("progressbar").getAttribute("aria-valuenow"), "100");
      await dialog.getByRole("button", { name: "Close" }).last().click();
      assert.deepEqual(await Promise.all(jobs.map(async (j) => (await call("GET", `/jobs/${j.id}`)).enabled)), [
        false,
        false,
        true,
      ]);
      for (const [n, on] of [
        [1, false],
        [2, false],
        [3, true],
      ])
        assert.equal(await page.getByRole("switch", { name: `Enable several-${n}` }).isChecked(), on);
      // A job that was deleted meanwhile is named with the error. The others are enabled.
      await page.getByLabel("Select all in the list").check();
      await page.locator(".bulk-bar").getByRole("button", { name: "Enable" }).click();
      const again = page.getByRole("dialog", { name: "Enable 3 jobs?" });
      await call("DELETE", `/jobs/${jobs[1].id}`);
      await again.getByRole("button", { name: "Enable 3" }).click();
      await again.getByText("3 of 3 · 1 failed").waitFor();
      await again.getByRole("listitem").getByText("several-2").waitFor();
      assert.equal((await call("GET", `/jobs/${jobs[0].id}`)).enabled, true);
      await again.getByRole("button", { name: "Close" }).last().click();
      await page.getByLabel("Select all in the list").check();
      await page.locator(".bulk-bar").getByRole("button", { name: "Delete" }).click();
      const last = page.getByRole("dialog", { name: "Delete 2 jobs?" });
      await last.getByRole("button", { name: "Delete 2" }).click();
      await page.getByText("No job matches the filters.").waitFor();
      await last.getByText("2 of 2", { exact: true }).waitFor(); // although the list no longer has the jobs
    },
  );
}
