// Scenes of narrow and wide windows. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { heading, scene } from "./scene.mjs";

export function widths(stage) {
  scene(stage, "on a phone, the menu opens, stays open, and closes after a page is chosen", { as: "admin", viewport: { width: 360, height: 740 } }, async (page) => {
    await page.goto("/");
    await heading(page, "Overview");
    const burger = page.getByRole("button", { name: "Menu" });
    const jobs = page.getByRole("navigation", { name: "Menu" }).getByRole("link", { name: "Jobs", exact: true });
    assert.equal(await inView(jobs), false, "the menu is open from the start");
    await burger.click();
    await page.locator('button[aria-expanded="true"]').waitFor();
    await page.locator(".page-head").getByText("Live", { exact: true }).waitFor(); // the page has rendered again
    assert.ok(await inView(jobs), "the menu has closed by itself");
    await jobs.click();
    await heading(page, "Jobs");
    await page.locator('button[aria-expanded="false"]').first().waitFor();
    assert.equal(await inView(jobs), false, "the menu covers the chosen page");
  });
}

/** inView reports whether an element is in the window. */
const inView = (locator) => locator.evaluate((el) => {
  const { left, right } = el.getBoundingClientRect();
  return getComputedStyle(el).visibility !== "hidden" && left < innerWidth && right > 0;
});
