// Scenes of narrow and wide windows. They are part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { historyOf, longNames } from "./history.mjs";
import { misfits } from "./misfits.mjs";
import { heading, ready, scene } from "./scene.mjs";

const windows = [360, 768, 1024, 1440];

/** languages returns the languages in which the nth page is measured: in the long tier both, otherwise one. */
const languages = (n) => (process.env.BELFRY_TEST_LONG ? ["en", "zh"] : [n % 2 === 0 ? "en" : "zh"]);

export function widths(stage) {
  scene(
    stage,
    "on a phone, the menu opens, stays open, and closes after a page is chosen",
    { as: "admin", viewport: { width: 360, height: 740 } },
    async (page) => {
      await page.goto("/");
      await heading(page, "Overview");
      const burger = page.getByRole("button", { name: "Menu" });
      const jobs = page.getByRole("navigation", { name: "Menu" }).getByRole("link", { name: "Jobs", exact: true });
      assert.equal(await inView(jobs), false, "the menu is open from the start");
      await burger.click();
      await page.locator('.header button[aria-expanded="true"]').waitFor();
      await page.locator(".page-head").getByText("Live", { exact: true }).waitFor(); // the page has rendered again
      assert.ok(await inView(jobs), "the menu has closed by itself");
      await jobs.click();
      await heading(page, "Jobs");
      await page.locator('.header button[aria-expanded="false"]').waitFor();
      assert.equal(await inView(jobs), false, "the menu covers the chosen page");
    },
  );

  scene(
    stage,
    "no page is wider than its window, and no row of a list is higher than three lines, with real history at four widths",
    { as: "admin" },
    async (page) => {
      const { job, script, failing, run } = await historyOf(stage);
      await longNames(stage, job);
      await page.goto("/");
      await heading(page, "Overview");
      const menu = await page.locator("nav a.nav-link").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
      const faults = [];
      for (const [n, path] of [
        ...menu,
        `/jobs?q=reconciliation`,
        `/jobs?health=failing&sort=p95_ms`,
        `/jobs/${job.id}`,
        `/jobs/${failing.id}`,
        `/jobs/${job.id}?tab=definition`,
        `/jobs/${job.id}?tab=history`,
        `/jobs/${script.id}?tab=script`,
        `/jobs/${script.id}/edit`,
        `/runs?job_id=${job.id}`,
        `/runs/${run.id}`,
        "/jobs/new",
        "/calendars/+new",
        "/account",
        "/executors?open=demo",
      ].entries()) {
        await page.setViewportSize({ width: 1440, height: 900 });
        await page.goto(path);
        await ready(page);
        for (const language of languages(n)) {
          await page.setViewportSize({ width: 1440, height: 900 });
          const lang = language === "en" ? "en" : "zh-Hans";
          if ((await page.locator("html").getAttribute("lang")) !== lang)
            await page.getByRole("button", { name: language === "en" ? "English" : "简体中文" }).click();
          await page.locator(`html[lang="${lang}"]`).waitFor();
          for (const width of windows) {
            await page.setViewportSize({ width, height: 900 });
            for (const fault of await page.evaluate(misfits))
              faults.push(`${path}, ${width} px, ${language}: ${fault}`);
          }
        }
      }
      assert.equal(faults.length, 0, faults.join("\n"));
    },
  );
}

/** inView reports whether an element is in the window. */
const inView = (locator) =>
  locator.evaluate((el) => {
    const { left, right } = el.getBoundingClientRect();
    return getComputedStyle(el).visibility !== "hidden" && left < innerWidth && right > 0;
  });
