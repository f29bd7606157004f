// The jobs, users, calendars and events of the company in the screenshots.
import { until } from "../browser/belfry.mjs";

/** populate creates jobs that fire often, one of which is unreliable, with parents, children, script versions and a trigger. */
export async function populate(call) {
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
