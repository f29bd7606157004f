// Scenes of what the pages say: unknown addresses, old numbers, time zones, changes, schedules. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { heading, scene } from "./scene.mjs";

export function plain(stage) {
  const call = (...of) => stage.call(...of);

  scene(stage, "an unknown address has a page that says so", { as: "admin" }, async (page) => {
    await page.goto("/jobz/7");
    await heading(page, "No such page");
    await page.getByRole("main").getByText("/jobz/7").waitFor();
    assert.equal(new URL(page.url()).pathname, "/jobz/7");
  });

  scene(
    stage,
    "numbers that are not current look so, and say how old they are",
    { as: "admin", refusals: [404] },
    async (page) => {
      await page.goto("/system");
      await page.locator(".tile").first().waitFor();
      assert.equal(await page.locator(".tiles-stale").count(), 0);
      await page.route("**/api/v1/system", (route) =>
        route.fulfill({
          status: 404,
          contentType: "application/problem+json",
          body: JSON.stringify({ title: "away", status: 404 }),
        }),
      );
      await page.locator(".tiles-stale .tile").first().waitFor();
      await page.getByText(/^Not current: these numbers are of \d\d:\d\d:\d\d\.$/).waitFor();
      await page.unroute("**/api/v1/system");
      await page.locator(".tiles-stale").waitFor({ state: "detached" });
    },
  );

  scene(stage, "a page names its time zone, and all its times are in it", { as: "admin" }, async (page) => {
    const job = await call("POST", "/jobs", {
      name: "in-tokyo",
      group: "demo",
      handler: "echo",
      enabled: true,
      schedule: { kind: "cron", expr: "0 9 * * *", time_zone: "Asia/Tokyo" },
    });
    const {
      fire_times: [first],
    } = await call("GET", `/jobs/${job.id}/next?count=1`);
    await page.goto(`/jobs/${job.id}`);
    await page
      .getByRole("banner")
      .getByText(/^Europe\/Berlin \(GMT\+\d\)$/)
      .waitFor();
    const here = new Intl.DateTimeFormat("en-GB", {
      timeZone: "Europe/Berlin",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    }).format(new Date(first));
    const times = page.getByRole("region", { name: "Upcoming" }).locator("time");
    await times.first().waitFor();
    assert.equal((await times.first().innerText()).slice(11), here);
    // The expression has its description.
    await page.getByRole("tab", { name: "Definition" }).click();
    await page.getByRole("region", { name: "Definition" }).getByText("At 09:00 every day, Asia/Tokyo").waitFor();
  });

  scene(
    stage,
    "the change log shows what changed, with the names of the fields and of the job",
    { as: "admin" },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "much-edited",
        group: "demo",
        handler: "echo",
        param: "first\nsecond",
        schedule: { kind: "cron", expr: "0 9 * * *" },
      });
      await call("PATCH", `/jobs/${job.id}`, {
        retries: 4,
        param: "first\nother",
        schedule: { kind: "cron", expr: "0 10 * * *" },
      });
      await page.goto(`/audit?object=job/${job.id}`);
      const row = page.locator("tbody tr", { hasText: "demo/much-edited" }).first();
      await row.getByRole("button", { name: "Before and after" }).click();
      const dialog = page.getByRole("dialog", { name: /demo\/much-edited/ });
      const field = (name) => dialog.locator(".changed").filter({ has: page.locator("dt", { hasText: name }) });
      await field("Retries").locator("ins", { hasText: "4" }).waitFor();
      await field("Schedule: Cron expression").locator("ins", { hasText: "0 10 * * *" }).waitFor();
      await field("Param").locator(".added", { hasText: "other" }).waitFor();
      assert.equal(await field("Param").locator(".same", { hasText: "first" }).count(), 1);
      assert.ok(!(await dialog.innerText()).includes("{"), "the dialog shows JSON");
    },
  );
}
