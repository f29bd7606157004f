// Promise test: a burst of 10,000 state changes a minute keeps the console's pages cheap. It runs alone, because it judges how much of a core a
// page needs. The times are CPU times of the page's main thread, so a slow or busy machine does not change them much.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { browserPath, start, until } from "./browser/belfry.mjs";

/** A page may need this share of a core for its scripts, beyond twice what it needs while nothing happens. */
const most = 0.15;
/** Each run changes its state three times at least: queued, running, succeeded. */
const changesOfRun = 3;
const changes = 10_000;
/** The number of jobs that fire each second. */
const jobs = changes / changesOfRun / 60 + 5;

let server, browser;
before(
  async () => {
    assert.ok(browserPath, "there is no Chromium; install one or set CHROMIUM");
    server = await start("--demo");
    await until("the demo's executor", async () => (await server.call("GET", "/groups/demo")).instances > 0);
    browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
  },
  { timeout: 600_000 },
);
after(async () => {
  await browser?.close();
  await server?.stop();
});

test("a burst of 10,000 state changes a minute costs a page little", { timeout: 1_800_000 }, async (t) => {
  const { call, base, cookies } = server;
  const context = await browser.newContext({ baseURL: base, viewport: { width: 1280, height: 900 }, locale: "en-GB" });
  await context.addCookies(cookies);
  const pages = [];
  for (const path of ["/?span=1h", "/runs"]) {
    const page = await context.newPage();
    page.setDefaultTimeout(120_000);
    const cdp = await context.newCDPSession(page);
    await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
    await page.goto(path);
    await page.getByText("Live", { exact: true }).waitFor();
    pages.push({ path, page, cdp });
  }
  /** used returns the share of a core that each page used for scripts and for all tasks while act ran. */
  const used = async (act) => {
    const begun = Date.now();
    const earlier = await Promise.all(pages.map(({ cdp }) => metrics(cdp)));
    await act();
    const seconds = (Date.now() - begun) / 1000;
    const later = await Promise.all(pages.map(({ cdp }) => metrics(cdp)));
    return later.map((m, i) => ({
      script: (m.ScriptDuration - earlier[i].ScriptDuration) / seconds,
      task: (m.TaskDuration - earlier[i].TaskDuration) / seconds,
      seconds,
    }));
  };
  const idleUntil = Date.now() + 30_000;
  const idle = await used(() => until("thirty idle seconds", () => Date.now() > idleUntil));
  const made = [];
  for (let i = 0; i < jobs; i++)
    made.push(
      await call("POST", "/jobs", {
        name: `burst-${i}`,
        group: "demo",
        handler: "echo",
        block: "parallel",
        misfire: "fire_all",
        schedule: { kind: "fixed_rate", every: "1s" },
      }),
    );
  const from = new Date(Date.now() - 60_000).toISOString();
  // A busy server may refuse the question, which is then asked again.
  const runs = () =>
    call("GET", `/overview?from=${from}`).then(
      (o) => o.counts.runs,
      () => 0,
    );
  await until("the burst", async () => (await runs()) > jobs * 3);
  const before = await runs();
  const enough = async () => ((await runs()) - before) * changesOfRun >= changes;
  const busy = await used(() => until("the changes", enough, 1200));
  for (const j of made) await call("POST", `/jobs/${j.id}/disable`);
  for (const [i, { path, page }] of pages.entries()) {
    const say = (u) => `scripts ${(100 * u.script).toFixed(1)} %, all tasks ${(100 * u.task).toFixed(1)} % of a core`;
    const time = busy[i].seconds.toFixed(0);
    t.diagnostic(`${path}: ${changes} changes in ${time} s: ${say(busy[i])}; idle: ${say(idle[i])}`);
    await page.locator("tbody .state-succeeded, .tile-value").first().waitFor();
    const bound = most + 2 * idle[i].script;
    assert.ok(busy[i].script <= bound, `${path} needs ${say(busy[i])}, and ${(100 * bound).toFixed(1)} % are allowed`);
  }
});

/** metrics returns the metrics of a page by name. */
async function metrics(cdp) {
  const { metrics: all } = await cdp.send("Performance.getMetrics");
  return Object.fromEntries(all.map((m) => [m.name, m.value]));
}
