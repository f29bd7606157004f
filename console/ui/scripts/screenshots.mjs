// Makes the screenshots of the documentation, docs/console/*.png, on a standalone with typical jobs: npm run screenshots. With
// names as arguments it makes only those. It waits some minutes until there are enough runs.
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browserPath, start, until } from "./browser/belfry.mjs";
import { populate } from "./screenshots/company.mjs";
import { past } from "./screenshots/past.mjs";
import { trouble } from "./screenshots/trouble.mjs";
import { small } from "./smallpng.mjs";

const to = process.env.BELFRY_SHOTS ?? fileURLToPath(new URL("../../../docs/console", import.meta.url));
const seconds = Number(process.env.BELFRY_SHOTS_AFTER ?? 240);
mkdirSync(to, { recursive: true });

const server = await start("--demo", "--allow-script", "sh,python", "--time-zone", "Europe/Berlin");
const browser = await chromium.launch({
  executablePath: browserPath,
  args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
});
try {
  const jobs = await populate(server.call);
  await trouble(server, jobs);
  past(server, jobs);
  const begun = Date.now();
  await until("enough runs", () => Date.now() - begun > seconds * 1000, seconds + 60);
  await pictures(jobs);
} finally {
  await browser.close();
  await server.stop();
}

async function pictures(jobs) {
  const { call, base, cookies } = server;
  const newest = async (query) => (await call("GET", `/runs?limit=1&${query}`)).items[0]?.id;
  const failed = await until("a run that failed", () => newest(`job_id=${jobs["sync-inventory"].id}&state=failed`), 90);
  const all = {
    overview: ["/", {}],
    "overview-dark": ["/", { dark: true }],
    "overview-zh": ["/", { zh: true }],
    "overview-narrow": ["/", { narrow: true }],
    jobs: ["/jobs?sort=failing_since", {}],
    job: [`/jobs/${jobs["ledger-export"].id}`, {}],
    scripts: [
      `/jobs/${jobs.invoices.id}?tab=script`,
      {
        act: async (page) => {
          await page.getByRole("textbox", { name: "Compare with…" }).click();
          await page.getByRole("option", { name: "Difference from version 1" }).click();
          await page.locator(".diff .added").first().waitFor();
        },
      },
    ],
    schedule: [
      `/jobs/${jobs["payment-run"].id}/edit`,
      {
        act: async (page) => {
          await page.locator(".preview tbody tr").nth(9).waitFor();
          await page.evaluate(() =>
            scrollTo(0, document.querySelector(".segments").getBoundingClientRect().top + scrollY - 110),
          );
        },
      },
    ],
    runs: ["/runs?state=failed,running,succeeded,retrying", {}],
    run: [`/runs/${failed}`, {}],
    executors: ["/executors", {}],
    week: ["/week", {}],
  };
  const wanted = process.argv.slice(2);
  for (const [name, [path, { dark, zh, narrow, act }]] of Object.entries(all)) {
    if (wanted.length && !wanted.includes(name)) continue;
    const context = await browser.newContext({
      baseURL: base,
      viewport: narrow ? { width: 390, height: 800 } : { width: 1280, height: 800 },
      colorScheme: dark ? "dark" : "light",
      locale: zh ? "zh-CN" : "en-GB",
      timezoneId: zh ? "Asia/Shanghai" : "Europe/Berlin",
      reducedMotion: "reduce",
    });
    await context.addCookies(cookies);
    const page = await context.newPage();
    await page.goto(path);
    await page.locator("h1").first().waitFor();
    await page.locator('#main[aria-busy="false"]').waitFor();
    if (path.startsWith("/runs/")) await page.locator(".log-line").first().waitFor();
    await act?.(page);
    await page.waitForTimeout(600); // wait for the drawing after the answers
    writeFileSync(`${to}/${name}.png`, small(await page.screenshot()));
    console.log(name);
    await context.close();
  }
}
