// The failures, backlogs and pauses of the screenshots.
import { heartbeat, until } from "../browser/belfry.mjs";

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

/** trouble creates 200 jobs in 20 groups with instances, and what needs attention: failing jobs, a group without executors, a backlog, a pause. */
export async function trouble({ call, nats }, made) {
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
