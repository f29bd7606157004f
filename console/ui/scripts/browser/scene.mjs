// The common part of all browser tests: each scene has its own page, and every error on it fails the scene.
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "./belfry.mjs";

let shots;

/**
 * scene is a test with a page. It fails if the page's console has an error or a warning, a script throws, the content
 * security policy is violated, the browser opens a dialog of its own, or the server answers 5xx. The browser writes refused requests
 * to the console, so refusals lists the statuses that the scene expects.
 */
export function scene(stage, name, { as, refusals = [], locale = "en-GB", ...options }, play) {
  test(name, { timeout: 600_000 }, async () => {
    const { base, browser } = stage;
    const context = await browser.newContext({
      baseURL: base,
      locale,
      viewport: { width: 1280, height: 900 },
      colorScheme: "light",
      reducedMotion: "reduce",
      timezoneId: "Europe/Berlin",
      ...options,
    });
    if (as) await context.addCookies(stage[as].cookies);
    const complaints = [];
    await context.exposeBinding("cspViolation", (_, what) => complaints.push(`content security policy: ${what}`));
    await context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (e) =>
        globalThis.cspViolation(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`),
      );
    });
    const expected = new RegExp(`status of (${[401, ...refusals].join("|")})`);
    context.on(
      "console",
      (m) =>
        ["error", "warning"].includes(m.type()) && !expected.test(m.text()) && complaints.push(`console: ${m.text()}`),
    );
    context.on("weberror", (e) => complaints.push(`script: ${e.error().stack}`));
    context.on("response", (r) => r.status() >= 500 && complaints.push(`${r.status()} ${r.url()}`));
    const page = await context.newPage();
    page.setDefaultTimeout(120_000); // asserts nothing, because a busy machine may be slow
    page.on("dialog", (d) => {
      complaints.push(`dialog: ${d.message()}`);
      void d.dismiss();
    });
    try {
      await play(page, context);
      if (complaints.length > 0) throw new Error(`the browser reports errors:\n${complaints.join("\n")}`);
    } catch (e) {
      shots ??= mkdtempSync(join(process.env.BELFRY_SHOTS ?? tmpdir(), "belfry-browser-failed-"));
      const shot = join(shots, `${name.replace(/\W+/g, "-")}.png`);
      await page.screenshot({ path: shot, timeout: 5000 }).catch(() => undefined);
      e.stack = [e.stack, `the page was at ${page.url()}, see ${shot}`, ...complaints].join("\n");
      throw e;
    } finally {
      await context.close();
    }
  });
}

/** zoneAt returns a time zone in which it is this hour of the day, for scenes that depend on the time of day. */
export function zoneAt(hour) {
  const ahead = ((hour - new Date().getUTCHours() + 36) % 24) - 12;
  return `Etc/GMT${ahead > 0 ? "-" : "+"}${Math.abs(ahead)}`; // these names have the opposite sign
}

/**
 * focusedIn waits until the focus is in a menu or dialog. Mantine moves it there by a timer after the menu or dialog appears. Keys that are
 * pressed before that go elsewhere.
 */
export function focusedIn(locator) {
  return until("the focus in the menu or dialog", () => locator.evaluate((el) => el.contains(document.activeElement)));
}

/** counted counts the interactions with a page: clicks, filled fields and keys. */
export function counted(page) {
  const count = { n: 0 };
  return {
    count,
    click: (locator) => (count.n++, locator.click()),
    fill: (locator, text) => (count.n++, locator.fill(text)),
    press: (key) => (count.n++, page.keyboard.press(key)),
  };
}

/** heading waits for the page with this title. */
export const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();

/** ready waits until the page has the answers to its first requests. */
export async function ready(page) {
  await page.locator("#main h1").first().waitFor();
  await page.locator('#main[aria-busy="false"]').waitFor();
}

/** axeSource is the script of axe-core. The debugging protocol runs it in a page although the content security policy forbids other scripts. */
export const axeSource = () => readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** axeFaults returns the serious faults that axe-core finds. The page must already contain axe-core. */
export async function axeFaults(page, where, only) {
  const violations = await page.evaluate(async (only) => {
    const { violations } = await globalThis.axe.run(document, {
      resultTypes: ["violations"],
      preload: false,
      ...(only
        ? { runOnly: { type: "rule", values: only } }
        : { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }),
    });
    return violations
      .filter((v) => ["serious", "critical"].includes(v.impact))
      .map((v) => ({
        id: v.id,
        help: v.help,
        nodes: v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.any[0]?.message ?? n.failureSummary}`),
      }));
  }, only);
  return violations.map((v) => `${where}: ${v.id}: ${v.help}\n    ${v.nodes.join("\n    ")}`);
}
