// Scenes of all pages: keyboard, filters, accessibility. They are part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { axeFaults, axeSource, focusedIn, heading, ready, scene } from "./scene.mjs";

/** otherSizes runs in the page. It returns texts whose size is none of the five sizes of the console. */
function otherSizes() {
  const sizes = ["12px", "13px", "14px", "16px", "20px"];
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = new Map();
  while (words.nextNode()) {
    const text = words.currentNode.textContent.trim();
    const of = words.currentNode.parentElement;
    if (!text || !of.checkVisibility() || of.closest("script, style, noscript")) continue;
    const size = getComputedStyle(of).fontSize;
    if (!sizes.includes(size)) found.set(size, `${size}: ${text.slice(0, 30)}`);
  }
  return [...found.values()];
}

export function pages(stage) {
  const call = (...of) => stage.call(...of);

  scene(stage, "the console can be used with the keyboard only", { as: "admin" }, async (page) => {
    await page.goto("/");
    await heading(page, "Overview");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    assert.notEqual(
      await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle),
      "none",
      "the focus is not visible",
    );
    await page.keyboard.press("Enter");
    await page.keyboard.press("?");
    await focusedIn(page.getByRole("dialog", { name: "Keyboard" }));
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("g");
    await page.keyboard.press("j");
    await page.waitForURL("/jobs");
    await heading(page, "Jobs");
    await page.locator("[data-row]").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("nightly");
    await page.waitForURL(/\?q=nightly/);
    await page.keyboard.press("Escape");
    await page.waitForURL("/jobs");
    await page.locator("[data-row]").nth(3).waitFor();
    const focused = () =>
      page.evaluate(() => [...document.querySelectorAll("[data-row]")].indexOf(document.activeElement));
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    assert.equal(await focused(), 1);
    await page.keyboard.press("k");
    assert.equal(await focused(), 0);
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/jobs\/\d+$/);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("nightly-rep"); // at once: "n" alone would open the form of a new job
    await page.getByRole("option", { name: "nightly-report" }).waitFor();
    await page.keyboard.press("Enter");
    await heading(page, "nightly-report");
    await page.keyboard.press("g");
    await page.keyboard.press("h");
    await heading(page, "Calendars");
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await heading(page, "Runs");
  });

  scene(stage, "the filters are in the address, and stay after back and forward", { as: "admin" }, async (page) => {
    await page.goto("/runs");
    await page.getByRole("group", { name: "State" }).getByRole("button", { name: "succeeded" }).click();
    await page.waitForURL("/runs?state=succeeded");
    await page.locator("tbody .state-succeeded").first().click();
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
    await page.goBack();
    await page.waitForURL("/runs?state=succeeded");
    await page.locator('.chip[aria-pressed="true"]', { hasText: "succeeded" }).waitFor();
    await page.locator("tbody .state-succeeded").first().waitFor();
    assert.equal(await page.locator("tbody .state-failed").count(), 0);
    await page.goForward();
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
    await page.goto("/jobs?q=nap&enabled=true");
    await page.locator("[data-row]").first().waitFor();
    assert.equal(await page.getByLabel("Search jobs").inputValue(), "nap");
    await page.reload();
    await page.locator("[data-row]").first().waitFor();
    assert.equal(await page.locator("[data-row]").count(), 1);
  });

  scene(
    stage,
    "every page has no serious accessibility faults, in light and dark, in both languages and with a width of 360 pixels",
    { as: "admin" },
    async (page, context) => {
      const [job] = (await call("GET", "/jobs?q=disk-space")).items;
      const run = await until(
        "a run of disk-space that has ended",
        async () =>
          (await call("GET", `/runs?job_id=${job.id}&state=succeeded&limit=1`)).items[0] ??
          (await call("POST", `/jobs/${job.id}/trigger`, {}), undefined),
        60,
      );
      await call("POST", "/calendars", {
        name: "every-page",
        weekdays: ["sunday"],
        dates: [`${new Date().getFullYear()}-12-25`],
      });
      await page.goto("/");
      await heading(page, "Overview");
      const pages = await page.locator("nav a.nav-link").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
      assert.ok(pages.length >= 9, `${pages.length} pages in the menu`);
      const cdp = await context.newCDPSession(page);
      const axe = axeSource();
      const faults = [];
      const narrow = async (where) => {
        await page.setViewportSize({ width: 360, height: 740 });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) faults.push(`${where} is ${wide} pixels wider than 360`);
        await page.setViewportSize({ width: 1280, height: 900 });
      };
      for (const path of [
        ...pages,
        "/runs?state=succeeded",
        "/calendars/+new",
        "/calendars/every-page",
        "/jobs/new",
        `/jobs/${job.id}`,
        `/jobs/${job.id}/edit`,
        `/runs/${run.id}`,
      ]) {
        await page.goto(path);
        await ready(page);
        // The debugging protocol runs axe in the page although the content security policy forbids other scripts.
        await cdp.send("Runtime.evaluate", { expression: axe });
        faults.push(...(await axeFaults(page, `${path} light`)));
        for (const other of await page.evaluate(otherSizes)) faults.push(`${path}: a text has another size: ${other}`);
        await page.emulateMedia({ colorScheme: "dark" });
        await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
        faults.push(...(await axeFaults(page, `${path} dark`, ["color-contrast"])));
        const english = await page.locator("h1").innerText();
        await narrow(path);
        await page.getByRole("button", { name: "简体中文" }).click();
        await page.locator('html[lang="zh-Hans"]').waitFor();
        if (pages.includes(path)) {
          await page
            .getByRole("heading", { level: 1, name: await page.locator('nav a[aria-current="page"]').innerText() })
            .waitFor();
          assert.notEqual(
            await page.locator("h1").innerText(),
            english,
            `${path} has the same heading in both languages`,
          );
        }
        await narrow(`${path} in Chinese`);
        await page.evaluate(() => localStorage.setItem("belfry.language", "en"));
        await page.emulateMedia({ colorScheme: "light" });
      }
      await call("DELETE", "/calendars/every-page");
      await context.clearCookies();
      await page.goto("/login");
      await page.getByRole("button", { name: "Log in" }).waitFor();
      await cdp.send("Runtime.evaluate", { expression: axe });
      faults.push(...(await axeFaults(page, "/login light")));
      await page.emulateMedia({ colorScheme: "dark" });
      await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
      faults.push(...(await axeFaults(page, "/login dark", ["color-contrast"])));
      assert.ok(faults.length === 0, faults.join("\n"));
    },
  );
}
