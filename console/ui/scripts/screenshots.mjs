// Makes the pictures of the documentation, docs/console/*.png, on a standalone with jobs as people have them:
// npm run screenshots, or with names of pictures those alone. It takes some minutes, in which runs come together.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browserPath, start, until } from "./browser/belfry.mjs";

const to = process.env.BELFRY_SHOTS ?? fileURLToPath(new URL("../../../docs/console", import.meta.url));
const seconds = Number(process.env.BELFRY_SHOTS_AFTER ?? 240);
mkdirSync(to, { recursive: true });

const server = await start("--demo", "--allow-script", "sh,python", "--time-zone", "Europe/Berlin");
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"] });
try {
  const jobs = await populate(server.call);
  const begun = Date.now();
  await until("runs to come together", () => Date.now() - begun > seconds * 1000, seconds + 60);
  await pictures(jobs);
} finally {
  await browser.close();
  await server.stop();
}

/** populate makes jobs that fire often, one of them unreliable, with parents, children, scripts in versions and a trigger. */
async function populate(call) {
  await until("the demo's executor", async () => (await call("GET", "/groups/demo")).instances > 0);
  const made = {};
  const job = async (name, rest) => (made[name] = await call("POST", "/jobs", { name, group: "demo", author: "mei", ...rest }));
  const cron = (expr, time_zone = "Europe/Berlin") => ({ kind: "cron", expr, time_zone });
  const sh = (...lines) => ({ language: "sh", code: `${lines.join("\n")}\n` });
  await job("mail-invoices", { schedule: { kind: "none" }, tags: ["billing"], handler: "sleep", param: "300ms" });
  await job("archive-invoices", { schedule: { kind: "none" }, tags: ["billing"], handler: "sleep", param: "200ms" });
  await job("close-books", { schedule: cron("0 3 1 * *"), tags: ["billing"], handler: "sleep", param: "2s", description: "On the first of the month, after the invoices." });
  await job("invoices", {
    schedule: cron("*/20 * * * * *"), tags: ["billing", "daily"], description: "Writes the invoices of all orders that were shipped.", timeout: "10m", retries: 2, retry_backoff: { initial: "2s" },
    script: sh('echo "reading orders since $BELFRY_FIRE_TIME"', "n=$((20 + $(date +%s) % 47))", 'echo "$n orders to bill"', "sleep 0.$(($(date +%s) % 9))", "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo \"invoice 2026-$((10000 + $(date +%s) % 9000 + i)) written\"; sleep 0.1; done", 'echo "::output {\\"invoices\\": $n}"'),
    children: [{ job_id: made["mail-invoices"].id, on: "success" }, { job_id: made["archive-invoices"].id, on: "success" }], alert: undefined,
  });
  await job("sync-inventory", {
    schedule: { kind: "fixed_rate", every: "15s" }, tags: ["shop"], retries: 1, retry_backoff: { initial: "1s" }, description: "Asks the warehouse what is in stock.",
    script: { language: "python", code: `import sys, time

print("\\x1b[36mwarehouse\\x1b[0m: asking for changes", flush=True)
time.sleep(0.3)
t = int(time.time()) // 15
if t % 4 == 0:
    print("\\x1b[31merror\\x1b[0m: connection to warehouse-eu-2 was reset after 3 tries", file=sys.stderr, flush=True)
    sys.exit("warehouse-eu-2 does not answer: connection reset by peer")
for shelf in range(1, 9):
    print(f"shelf {shelf}: {(t * shelf) % 90 + 4} articles changed", flush=True)
    time.sleep(0.05)
print("\\x1b[32mdone\\x1b[0m, stock is up to date", flush=True)
` },
  });
  await job("reindex-search", { schedule: cron("30 */2 * * * *"), tags: ["shop"], block: "discard_later", description: "Rebuilds the search index of the shop.", script: sh("i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo \"segment $i of 400: $((i * 2137)) documents\"; sleep 0.25; done") });
  await job("currency-rates", { schedule: cron("15 * * * * *", "UTC"), tags: ["billing"], handler: "echo", param: '{"base": "EUR", "symbols": ["USD", "CNY"]}' });
  await job("weekly-newsletter", { schedule: cron("0 9 * * MON", "Asia/Shanghai"), tags: ["marketing"], handler: "echo", param: "spring" });
  await job("order-created", { schedule: { kind: "none" }, tags: ["shop"], handler: "echo" });
  const code = made.invoices.script.code;
  await call("POST", `/jobs/${made.invoices.id}/scripts`, { language: "sh", code: code.replace("invoice 2026-", "invoice INV-2026-"), remark: "numbers as accounting wants them" });
  await call("POST", "/event-triggers", { name: "orders.created", job_id: made["order-created"].id, filter: "event.data.amount > 100.0", param: "order {{.event.data.id}}" });
  for (const [id, amount] of [[4711, 249.9], [4712, 17.5], [4713, 1020]]) await call("POST", "/events/orders.created", { id, amount });
  await call("POST", "/users", { username: "mei", password: "a-long-password", role: "operator", groups: ["demo"] });
  await call("POST", "/users", { username: "on-call", password: "a-long-password", role: "viewer", groups: ["demo"] });
  await call("POST", "/alert-channels", { name: "ops", kind: "webhook", url: "https://alerts.example.com/belfry" }).catch(() => undefined);
  await call("POST", "/tokens", { name: "deploy pipeline", role: "operator" }).catch(() => undefined);
  return made;
}

async function pictures(jobs) {
  const { call, base, cookies } = server;
  const newest = async (query) => (await call("GET", `/runs?limit=1&${query}`)).items[0]?.id;
  const failed = await until("a run that failed", () => newest(`job_id=${jobs["sync-inventory"].id}&state=failed`), 90);
  const running = (await newest(`job_id=${jobs["reindex-search"].id}&state=running`)) ?? failed;
  const all = {
    login: ["/login", {}], overview: ["/?span=1h", {}], jobs: ["/jobs", {}], job: [`/jobs/${jobs.invoices.id}`, { tall: true }], "job-form": [`/jobs/${jobs["sync-inventory"].id}/edit`, {}],
    runs: ["/runs?state=failed,running,succeeded,retrying", {}], run: [`/runs/${failed}`, {}], "run-live": [`/runs/${running}`, {}],
    executors: ["/executors", {}], events: ["/events", {}], "alert-channels": ["/alert-channels", {}], tokens: ["/tokens", {}], users: ["/users", {}], audit: ["/audit", {}],
    "overview-dark": ["/?span=1h", { dark: true }], "job-dark": [`/jobs/${jobs["sync-inventory"].id}`, { dark: true }], "run-dark": [`/runs/${failed}`, { dark: true }], "runs-zh": ["/runs?state=failed,running,succeeded,retrying", { zh: true }], "overview-zh": ["/?span=1h", { zh: true }],
    "jobs-narrow": ["/jobs", { narrow: true }], palette: ["/jobs", { act: async (page) => { await page.keyboard.press("Control+k"); await page.getByRole("combobox").fill("inv"); await page.getByRole("option", { name: "invoices" }).first().waitFor(); } }],
    calendar: ["/calendar", {}], system: ["/system", {}],
  };
  const wanted = process.argv.slice(2);
  for (const [name, [path, { dark, zh, narrow, tall, act }]] of Object.entries(all)) {
    if (wanted.length && !wanted.includes(name)) continue;
    const context = await browser.newContext({ baseURL: base, viewport: narrow ? { width: 390, height: 800 } : { width: 1280, height: tall ? 1500 : 800 }, colorScheme: dark ? "dark" : "light", locale: zh ? "zh-CN" : "en-GB", timezoneId: zh ? "Asia/Shanghai" : "Europe/Berlin", reducedMotion: "reduce" });
    if (path !== "/login") await context.addCookies(cookies);
    const page = await context.newPage();
    await page.goto(path);
    await page.locator("h1").first().waitFor();
    if (new URL(page.url()).pathname === new URL(path, base).pathname) { // else there is no such page
      if (path !== "/login") await page.locator('#main[aria-busy="false"]').waitFor();
      if (path.startsWith("/runs/")) await page.locator(".log-line").first().waitFor();
      await act?.(page);
      await page.waitForTimeout(600); // what is drawn after the answer
      await page.screenshot({ path: `${to}/${name}.png` });
      console.log(name);
    }
    await context.close();
  }
}
