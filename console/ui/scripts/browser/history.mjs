// Real history for scenes about all pages: jobs with long names and long texts, and what became of their runs.
import { publish, until } from "./belfry.mjs";

/** historyOf makes the history once for each stage. */
export const historyOf = (stage) => (stage.history ??= history(stage.call));

/** history creates jobs with long names, and runs of them: succeeded and failed ones with long messages, held ones, and missed fire times. */
async function history(call) {
  const group = "settlement-and-reconciliation-emea-production";
  await call("POST", "/groups", {
    name: group,
    description: "Settles the orders of all shops in Europe, the Middle East and Africa",
  });
  await call("POST", `/groups/${group}/pause`, {
    reason: "the database of the ledger of record is moved to another data centre",
  });
  await call("POST", "/jobs", {
    name: "settlement-files-of-all-correspondent-banks-are-fetched",
    group,
    handler: "settlement.files.fetch",
    tags: ["settlement", "banks"],
    schedule: { kind: "fixed_rate", every: "1s" },
  });
  const name =
    "nightly-reconciliation-of-settlement-files-with-the-ledger-of-record-in-eu-central-and-us-east-for-all-correspondent-banks";
  const followers = await Promise.all(
    ["report-of-the-differences", "mail-to-the-controllers", "archive"].map((n) =>
      call("POST", "/jobs", {
        name: `${n}-of-the-nightly-reconciliation`,
        group,
        handler: "reports.write",
        schedule: { kind: "none" },
      }),
    ),
  );
  const common = {
    group: "demo",
    block: "parallel",
    tags: ["reconciliation", "finance", "nightly", "critical"],
    description: "Compares each line of the files with the ledger. ".repeat(4),
  };
  const cron = { kind: "cron", expr: "* * * * *", time_zone: "America/Argentina/Buenos_Aires" };
  const job = await call("POST", "/jobs", {
    ...common,
    name,
    schedule: cron,
    children: followers.map((f) => ({ job_id: f.id, on: "always" })),
    script: {
      language: "sh",
      code: 'sleep 0.$(($(date +%s) % 3))\necho "https://ledger.example.com/v2/accounts/settlement/2026/differences?token=0123456789abcdef0123456789abcdef0123456789" >&2\nexit $(($(date +%s) % 2))\n',
    },
  });
  const script = await call("POST", "/jobs", {
    ...common,
    name: `${name.slice(0, 60)}-by-hand`,
    schedule: { kind: "none" },
    script: {
      language: "sh",
      code: `echo ${"x".repeat(400)}\n`,
      remark: "the first version, as the controllers asked for it",
    },
  });
  const coded = await call("POST", "/jobs", {
    ...common,
    name: "with-code-in-all-colours",
    schedule: { kind: "none" },
    script: {
      language: "python",
      code: "# a comment\nimport os\n\n@decorated\nclass Ledger:\n    def lines(self, most=10):\n        if most is not None and True:\n            return [f\"line\\t{n}\" for n in range(0x10)] + ['x' * 3.5]\n",
    },
  });
  await call("POST", `/jobs/${job.id}/backfill`, {
    from: new Date(Date.now() - 55 * 60_000).toISOString(),
    to: new Date().toISOString(),
    max: 55,
  });
  await call("PATCH", `/jobs/${job.id}`, { description: "Compares each line of the files with the ledger of record." });
  const {
    run_ids: [first],
  } = await call("POST", `/jobs/${script.id}/trigger`, { param: JSON.stringify({ account: "0123456789".repeat(30) }) });
  await until(
    "the ends of the runs",
    async () => (await call("GET", `/runs?job_id=${job.id}&state=succeeded,failed&limit=60`)).items.length >= 50,
  );
  await call("POST", `/groups/${group}/resume`);
  // One job fails and is paused; another one fails, and its failure is acknowledged.
  const [failing, known] = await Promise.all(
    ["fails", "is-known-to-fail"].map(async (n) => {
      const j = await call("POST", "/jobs", {
        ...common,
        name: `${name.slice(0, 80)}-${n}`,
        runbook_url: "https://runbooks.example.com/settlement/differences",
        schedule: cron,
        script: { language: "sh", code: `echo ${"the ledger does not answer ".repeat(12)}>&2\nexit 3\n` },
      });
      await call("POST", `/jobs/${j.id}/pause`, { reason: "the database of the ledger of record is moved" });
      await call("POST", `/jobs/${j.id}/trigger`, {});
      return j;
    }),
  );
  const item = await until("the failures", async () => {
    const { items } = await call("GET", "/attention");
    return items.some((i) => i.job_id === failing.id) && items.find((i) => i.job_id === known.id);
  });
  await call("POST", `/attention/${item.id}/acknowledge`, { note: "the controllers know, and correct the ledger" });
  return { job, script, coded, failing, run: await call("GET", `/runs/${first}`) };
}

/** longNames creates one of everything else that has a list, with long names and texts, and an alert and an event with several deliveries. */
export async function longNames({ call: api, nats }, job) {
  const call = (...of) => api(...of);
  const long = "the-differences-between-the-ledger-of-record-and-the-settlement-files";
  const text = "Compares each line of the files with the ledger of record, and tells the controllers. "
    .repeat(3)
    .trim();
  const groups = ["payments-emea-production", "payments-apac-production", "payments-amer-production"];
  for (const name of groups) await call("POST", "/groups", { name });
  const channels = ["a", "b", "c", "d"].map((n) => `${n}-${long.slice(0, 50)}`);
  for (const name of channels)
    await call("POST", "/alert-channels", {
      name,
      kind: "webhook",
      url: `https://127.0.0.1:1/${long}`,
      description: text,
    });
  const calendar = `${long.slice(0, 40)}-days-off`;
  await call("POST", "/calendars", {
    name: calendar,
    description: text,
    weekdays: ["monday", "wednesday", "friday", "saturday", "sunday"],
    dates: [`${new Date().getFullYear() + 1}-01-01`],
  });
  await call("POST", "/users", { username: long.slice(0, 60), password: "a-long-password", role: "operator", groups });
  await call("POST", "/tokens", { name: `${long.slice(0, 40)} of the pipeline`, role: "operator", groups });
  const failing = await call("POST", "/jobs", {
    name: `${long}-are-mailed`,
    group: "demo",
    schedule: { kind: "none" },
    script: { language: "sh", code: "exit 1\n" },
    alert: { channels, on: ["failed"] },
  });
  const event = `ledger.${long.replaceAll("-", ".")}`;
  for (const [n, target] of [failing, job, failing, job].entries())
    await call("POST", "/event-triggers", {
      name: event,
      job_id: target.id,
      filter: `event.data.amount > ${n}.0 && event.data.ledger == "the ledger of record" && event.data.currency == "EUR"`,
      param: '{"text": "{{.event.data.text}} of the ledger of record and the settlement files"}',
    });
  await call("POST", `/events/${event}`, { amount: 2.5, ledger: "the ledger of record", currency: "EUR", text });
  const { token } = await call("POST", "/tokens", { name: "long letters", role: "admin", scope: "events" });
  await publish(nats, token, `belfry.v1.event.${event}`, "no JSON");
  await until("the dead letter", async () => (await call("GET", "/dead-letters")).items[0]);
  await until("the alert", async () => (await call("GET", "/alerts")).items.some((a) => a.deliveries.length === 4));
}
