// Makes the screenshots of the documentation, docs/console/*.png, on a standalone with typical jobs: npm run screenshots. With
// names as arguments it makes only those. It waits some minutes until there are enough runs.
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browserPath, heartbeat, start, until } from "./browser/belfry.mjs";
import { small } from "./smallpng.mjs";

const to = process.env.BELFRY_SHOTS ?? fileURLToPath(new URL("../../../docs/console", import.meta.url));
const seconds = Number(process.env.BELFRY_SHOTS_AFTER ?? 240);
mkdirSync(to, { recursive: true });

/** The groups of the company, and the jobs of each. */
const areas = ["orders", "billing", "shipping", "stock", "returns", "search", "mail", "reports", "ledger", "tax"];
const others = [
  "fraud",
  "pricing",
  "loyalty",
  "media",
  "support",
  "archive",
  "metrics",
  "catalog",
  "identity",
  "returns-eu",
];
const tasks = [
  "export",
  "import",
  "sync",
  "cleanup",
  "reindex",
  "digest",
  "reconcile",
  "snapshot",
  "verify",
  "forecast",
];

const server = await start("--demo", "--allow-script", "sh,python", "--time-zone", "Europe/Berlin");
const browser = await chromium.launch({
  executablePath: browserPath,
  args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
});
try {
  const jobs = await populate(server.call);
  await trouble(server, jobs);
  past(jobs);
  const begun = Date.now();
  await until("enough runs", () => Date.now() - begun > seconds * 1000, seconds + 60);
  await pictures(jobs);
} finally {
  await browser.close();
  await server.stop();
}

/** populate creates jobs that fire often, one of which is unreliable, with parents, children, script versions and a trigger. */
async function populate(call) {
  await until("the demo's executor", async () => (await call("GET", "/groups/demo")).instances > 0);
  const made = {};
  const job = async (name, rest) =>
    (made[name] = await call("POST", "/jobs", { name, group: "demo", author: "mei", ...rest }));
  const cron = (expr, time_zone = "Europe/Berlin") => ({ kind: "cron", expr, time_zone });
  const sh = (...lines) => ({ language: "sh", code: `${lines.join("\n")}\n` });
  await job("mail-invoices", { schedule: { kind: "none" }, tags: ["billing"], handler: "sleep", param: "300ms" });
  await job("archive-invoices", { schedule: { kind: "none" }, tags: ["billing"], handler: "sleep", param: "200ms" });
  await job("close-books", {
    schedule: cron("0 3 1 * *"),
    tags: ["billing"],
    handler: "sleep",
    param: "2s",
    description: "On the first of the month, after the invoices.",
  });
  await job("invoices", {
    schedule: cron("*/20 * * * * *"),
    tags: ["billing", "daily"],
    description: "Writes the invoices of all orders that were shipped.",
    timeout: "10m",
    retries: 2,
    retry_backoff: { initial: "2s" },
    script: sh(
      'echo "reading orders since $BELFRY_FIRE_TIME"',
      "n=$((20 + $(date +%s) % 47))",
      'echo "$n orders to bill"',
      "sleep 0.$(($(date +%s) % 9))",
      'i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo "invoice 2026-$((10000 + $(date +%s) % 9000 + i)) written"; sleep 0.1; done',
      'echo "::output {\\"invoices\\": $n}"',
    ),
    children: [
      { job_id: made["mail-invoices"].id, on: "success" },
      { job_id: made["archive-invoices"].id, on: "success" },
    ],
    alert: undefined,
  });
  await job("sync-inventory", {
    schedule: { kind: "fixed_rate", every: "15s" },
    tags: ["shop"],
    retries: 1,
    retry_backoff: { initial: "1s" },
    description: "Asks the warehouse what is in stock.",
    script: {
      language: "python",
      code: `import sys, time

print("\\x1b[36mwarehouse\\x1b[0m: asking for changes", flush=True)
time.sleep(0.3)
t = int(time.time()) // 30
if t % 3 == 0:
    print("\\x1b[31merror\\x1b[0m: connection to warehouse-eu-2 was reset after 3 tries", file=sys.stderr, flush=True)
    sys.exit("warehouse-eu-2 does not answer: connection reset by peer")
for shelf in range(1, 9):
    print(f"shelf {shelf}: {(t * shelf) % 90 + 4} articles changed", flush=True)
    time.sleep(0.05)
print("\\x1b[32mdone\\x1b[0m, stock is up to date", flush=True)
`,
    },
  });
  await job("reindex-search", {
    schedule: cron("30 */2 * * * *"),
    tags: ["shop"],
    block: "discard_later",
    description: "Rebuilds the search index of the shop.",
    script: sh(
      'i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo "segment $i of 400: $((i * 2137)) documents"; sleep 0.25; done',
    ),
  });
  await job("currency-rates", {
    schedule: cron("15 * * * * *", "UTC"),
    tags: ["billing"],
    handler: "echo",
    param: '{"base": "EUR", "symbols": ["USD", "CNY"]}',
  });
  await job("warehouse-report", {
    schedule: cron("0 * * * *"),
    tags: ["shop"],
    retries: 1,
    description: "What came in, what went out, what is left: each hour, for the people at the ramp.",
    script: sh('echo "counting shelves"', "sleep 0.4", 'echo "report written"'),
    children: [{ job_id: made["mail-invoices"].id, on: "always" }],
  });
  await job("weekly-newsletter", {
    schedule: cron("0 9 * * MON", "Asia/Shanghai"),
    tags: ["marketing"],
    handler: "echo",
    param: "spring",
  });
  await job("order-created", { schedule: { kind: "none" }, tags: ["shop"], handler: "echo" });
  const code = made.invoices.script.code;
  await call("POST", `/jobs/${made.invoices.id}/scripts`, {
    language: "sh",
    code: code.replace("invoice 2026-", "invoice INV-2026-"),
    remark: "numbers as accounting wants them",
  });
  await call("POST", "/event-triggers", {
    name: "orders.created",
    job_id: made["order-created"].id,
    filter: "event.data.amount > 100.0",
    param: "order {{.event.data.id}}",
  });
  for (const [id, amount] of [
    [4711, 249.9],
    [4712, 17.5],
    [4713, 1020],
  ])
    await call("POST", "/events/orders.created", { id, amount });
  await call("POST", "/users", { username: "mei", password: "a-long-password", role: "operator", groups: ["demo"] });
  await call("POST", "/users", { username: "on-call", password: "a-long-password", role: "viewer", groups: ["demo"] });
  const year = new Date().getFullYear();
  const dates = [year, year + 1].flatMap((y) => ["01-01", "05-01", "10-03", "12-25", "12-26"].map((d) => `${y}-${d}`));
  await call("POST", "/calendars", {
    name: "holidays",
    description: "Public holidays, and weekends.",
    weekdays: ["saturday", "sunday"],
    dates: [...dates, ...["03-26", "03-29", "05-06", "05-17"].map((d) => `${year + 1}-${d}`)],
  });
  await call("POST", "/calendars", {
    name: "stock-taking",
    description: "The warehouse counts; nothing goes out.",
    weekdays: [],
    dates: [`${year}-12-30`, `${year}-12-31`, `${year + 1}-06-30`],
  });
  await job("payment-run", {
    schedule: { ...cron("30 9 * * *"), calendar: "holidays" },
    tags: ["billing"],
    handler: "echo",
    description: "Pays what is due, on days on which banks work.",
  });
  await job("parcel-labels", {
    schedule: { ...cron("0 7 * * *"), calendar: "stock-taking" },
    tags: ["shop"],
    handler: "echo",
  });
  // The group partners misses fire times in its pause. The job's schedule ends with the pause, because the group has no executor.
  const soon = (s) => new Date(Date.now() + s * 1000).toISOString();
  await call("POST", "/groups", { name: "partners" });
  await call("POST", "/groups/partners/pause", { reason: "their warehouse moves house", until: soon(25) });
  await job("fetch-orders", {
    group: "partners",
    schedule: { kind: "fixed_rate", every: "5s", end_at: soon(20) },
    handler: "echo",
  });
  await call("POST", "/alert-channels", {
    name: "ops",
    kind: "webhook",
    url: "https://alerts.example.com/belfry",
  }).catch(() => undefined);
  await call("POST", "/tokens", { name: "deploy pipeline", role: "operator" }).catch(() => undefined);
  return made;
}

/** trouble creates 200 jobs in 20 groups with instances, and what needs attention: failing jobs, a group without executors, a backlog, a pause. */
async function trouble({ call, nats }, made) {
  const groups = [...areas, ...others];
  const started_at = new Date().toISOString();
  const instances = [];
  for (const [g, group] of groups.entries()) {
    const { token } = await call("POST", "/groups", { name: group });
    const boot_id = `${g}`.padStart(16, "0");
    const instance = {
      group,
      instance: `${group}-1`,
      boot_id,
      handlers: ["*"],
      capacity: 16,
      host: `${group}-7f9c`,
      started_at,
    };
    instances.push(() => heartbeat(nats, token, instance));
    for (const [t, task] of tasks.entries())
      await call("POST", "/jobs", {
        name: `${group}-${task}`,
        group,
        handler: `${group}.${task}`,
        tags: t % 3 ? ["nightly"] : ["finance"],
        schedule: { kind: "cron", expr: `${(g * 7 + t * 11) % 60} ${(g + t) % 24} * * *`, time_zone: "Europe/Berlin" },
      });
  }
  const beat = () => Promise.all(instances.map((send) => send().catch(() => undefined)));
  await beat();
  setInterval(() => void beat(), 3000).unref();
  await call("POST", "/groups", { name: "mobile-push" });
  for (const task of ["send", "expire", "report"])
    await call("POST", "/jobs", {
      name: `push-${task}`,
      group: "mobile-push",
      handler: `push.${task}`,
      start_deadline: "20s",
      schedule: { kind: "cron", expr: "*/2 * * * *" },
    });
  for (const [name, says] of [
    ["card-settlement", "the settlement file of yesterday is missing"],
    ["ledger-export", "cannot write /mnt/ledger/2026-03.csv: no space left on device"],
  ]) {
    const job = (made[name] = await call("POST", "/jobs", {
      name,
      group: "demo",
      tags: ["billing", "critical"],
      runbook_url: `https://runbooks.example.com/${name}`,
      schedule: { kind: "cron", expr: "*/20 * * * * *" },
      script: { language: "sh", code: "sleep 0.4\necho exported\n" },
    }));
    await until("a success", async () => (await call("GET", `/runs?job_id=${job.id}&state=succeeded`)).items[1]);
    const code = `echo "reading accounts"\necho "${says}" >&2\nexit 28\n`;
    await call("POST", `/jobs/${job.id}/scripts`, { language: "sh", code, remark: "release 2026.3" });
  }
  const slow = await call("POST", "/jobs", {
    name: "rebuild-catalog",
    group: "demo",
    handler: "sleep",
    param: "600s",
    tags: ["shop"],
    schedule: { kind: "none" },
  });
  for (let i = 0; i < 130; i++) await call("POST", `/jobs/${slow.id}/trigger`, {});
  await call("POST", `/jobs/${made["parcel-labels"].id}/pause`, { reason: "the printers are replaced" });
}

/** past inserts some days of run statistics, and two weeks of one job's runs. */
function past(jobs) {
  const sql = `
INSERT INTO run_stats (span, at, group_name, state, reason, runs, duration_ms)
SELECT span, at, 'demo', state, CASE state WHEN 'failed' THEN 'handler_error' WHEN 'skipped' THEN 'discarded' ELSE '' END, n * span / 60, n * span * 15
FROM (SELECT 60 AS span, generate_series(date_trunc('minute', now()) - interval '72 hours', now() - interval '1 minute', interval '1 minute') AS at
      UNION ALL SELECT 3600, generate_series(date_trunc('hour', now()) - interval '8 days', date_trunc('hour', now()) - interval '1 hour', interval '1 hour')) s,
LATERAL (VALUES ('succeeded', (60 + 28 * sin(extract(epoch FROM at) / 13750) + 14 * random())::bigint), ('failed', (CASE WHEN random() < 0.12 THEN 4 ELSE 0 END + CASE WHEN extract(epoch FROM now() - at)::bigint BETWEEN 30000 AND 34000 THEN 19 ELSE 0 END)::bigint), ('skipped', (2 * random())::bigint)) v (state, n)
WHERE n > 0 ON CONFLICT DO NOTHING;
INSERT INTO run_lateness (span, at, group_name, bucket, runs) SELECT span, at, group_name, b, runs / (1 + b) FROM run_stats, generate_series(0, 16, 4) b WHERE state = 'succeeded' AND runs > b ON CONFLICT DO NOTHING;
SELECT make_day(d::date) FROM generate_series(now() - interval '15 days', now(), interval '1 day') d;
INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at, created_at, dispatched_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(at::text), 1, 3) || '9' || substr(md5(at::text), 4, 15))::uuid, ${jobs["warehouse-report"].id}, 1, 'demo', 'schedule',
  CASE WHEN bad THEN 'failed' ELSE 'succeeded' END, CASE WHEN bad THEN 'handler_error' ELSE '' END, CASE WHEN bad THEN 'exit status 1' ELSE '' END, '', CASE WHEN bad THEN 2 ELSE 1 END, at, at, at - interval '5 seconds', at, at + interval '2 ms', at + took, 2, 2, 'demo-1', 'past', 'any: the only instance with a free slot', NULL
FROM (SELECT at, random() < 0.04 OR extract(epoch FROM now() - at)::bigint BETWEEN 30000 AND 40000 AS bad, (600 + 500 * random() + 4 * extract(hour FROM at) * extract(hour FROM at)) * interval '1 ms' AS took
      FROM generate_series(date_trunc('hour', now()) - interval '13 days 7 hours', date_trunc('hour', now()) - interval '1 hour', interval '1 hour') at WHERE NOT at BETWEEN now() - interval '101 hours' AND now() - interval '95 hours') h;
INSERT INTO missed (job_id, at, first_fire_time, last_fire_time, count, policy, why) SELECT ${jobs["warehouse-report"].id}, now() - interval '95 hours', date_trunc('hour', now()) - interval '100 hours', date_trunc('hour', now()) - interval '95 hours', 6, 'skip', 'no scheduler ran from then until then';
`;
  const psql =
    process.env.PSQL ??
    execFileSync("bash", ["-c", "command -v psql || ls /usr/lib/postgresql/*/bin/psql | tail -1"], {
      encoding: "utf8",
    }).trim();
  execFileSync(
    psql,
    [
      "-qAt",
      "-o",
      "/dev/null",
      "-v",
      "ON_ERROR_STOP=1",
      "-h",
      join(server.data, "postgres", "run"),
      "-U",
      "belfry",
      "-d",
      "belfry",
    ],
    { input: sql, stdio: ["pipe", "inherit", "inherit"] },
  );
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
