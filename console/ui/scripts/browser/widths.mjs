// Scenes of narrow and wide windows. They are part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { publish, until } from "./belfry.mjs";
import { axeFaults, axeSource, heading, ready, scene } from "./scene.mjs";

const windows = [360, 768, 1024, 1440];

export function widths(stage) {
  scene(
    stage,
    "on a phone, the menu opens, stays open, and closes after a page is chosen",
    { as: "admin", viewport: { width: 360, height: 740 } },
    async (page) => {
      await page.goto("/");
      await heading(page, "Overview");
      const burger = page.getByRole("button", { name: "Menu" });
      const jobs = page.getByRole("navigation", { name: "Menu" }).getByRole("link", { name: "Jobs", exact: true });
      assert.equal(await inView(jobs), false, "the menu is open from the start");
      await burger.click();
      await page.locator('.header button[aria-expanded="true"]').waitFor();
      await page.locator(".page-head").getByText("Live", { exact: true }).waitFor(); // the page has rendered again
      assert.ok(await inView(jobs), "the menu has closed by itself");
      await jobs.click();
      await heading(page, "Jobs");
      await page.locator('.header button[aria-expanded="false"]').waitFor();
      assert.equal(await inView(jobs), false, "the menu covers the chosen page");
    },
  );

  scene(
    stage,
    "no page is wider than its window, and no row of a list is higher than three lines, with real history at four widths in both languages",
    { as: "admin" },
    async (page) => {
      const { job, script, failing, run } = await (stage.history ??= history(stage.call));
      await longNames(stage, job);
      await page.goto("/");
      await heading(page, "Overview");
      const menu = await page.locator("nav a.nav-link").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
      const faults = [];
      for (const path of [
        ...menu,
        `/jobs?q=reconciliation`,
        `/jobs?health=failing&sort=p95_ms`,
        `/jobs/${job.id}`,
        `/jobs/${failing.id}`,
        `/jobs/${job.id}?tab=definition`,
        `/jobs/${job.id}?tab=history`,
        `/jobs/${script.id}?tab=script`,
        `/jobs/${script.id}/edit`,
        `/runs?job_id=${job.id}`,
        `/runs/${run.id}`,
        "/jobs/new",
        "/calendars/+new",
        "/account",
        "/executors?open=demo",
      ]) {
        await page.setViewportSize({ width: 1440, height: 900 });
        await page.goto(path);
        await ready(page);
        for (const language of ["en", "zh"]) {
          await page.setViewportSize({ width: 1440, height: 900 });
          const lang = language === "en" ? "en" : "zh-Hans";
          if ((await page.locator("html").getAttribute("lang")) !== lang)
            await page.getByRole("button", { name: language === "en" ? "English" : "简体中文" }).click();
          await page.locator(`html[lang="${lang}"]`).waitFor();
          for (const width of windows) {
            await page.setViewportSize({ width, height: 900 });
            for (const fault of await page.evaluate(misfits))
              faults.push(`${path}, ${width} px, ${language}: ${fault}`);
          }
        }
      }
      assert.equal(faults.length, 0, faults.join("\n"));
    },
  );

  scene(
    stage,
    "what needs attention, the health of jobs, the week, the graph and the editor have no serious accessibility faults, with real history, in light and dark",
    { as: "admin" },
    async (page, context) => {
      const { job, coded, failing } = await (stage.history ??= history(stage.call));
      const cdp = await context.newCDPSession(page);
      const faults = [];
      for (const [path, part, act] of [
        ["/", ".attention-row"],
        [
          "/",
          ".acked",
          async () => {
            await page.getByText(/^Acknowledged: /).click();
            await page
              .getByRole("button", { name: /^Acknowledge / })
              .first()
              .click();
            await page.getByRole("dialog").waitFor();
          },
        ],
        ["/jobs?sort=failing_since", "td.mid .failing-link"],
        [`/jobs/${failing.id}`, ".health-failing"],
        ["/week", ".slot"],
        [`/jobs/${job.id}?tab=definition`, ".job-graph"],
        [`/jobs/${coded.id}/edit`, ".cm-line span"],
      ]) {
        await page.goto(path);
        await ready(page);
        await page.locator(part).first().waitFor();
        await act?.();
        await cdp.send("Runtime.evaluate", { expression: axeSource() });
        for (const colorScheme of ["light", "dark"]) {
          await page.emulateMedia({ colorScheme });
          await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor();
          faults.push(...(await axeFaults(page, `${path} ${colorScheme}`)));
        }
        await page.emulateMedia({ colorScheme: "light" });
      }
      assert.equal(faults.length, 0, faults.join("\n"));
    },
  );

  scene(stage, "in Chinese, a term is the same everywhere", { as: "admin", locale: "zh-CN" }, async (page) => {
    const { job, run } = await (stage.history ??= history(stage.call));
    const seen = [];
    for (const path of ["/", "/account", `/jobs/${job.id}`, `/runs/${run.id}`, "/jobs/new"]) {
      await page.goto(path);
      await ready(page);
      if (path === "/jobs/new") await page.getByRole("button", { name: "显示并修改" }).click();
      if (path.startsWith("/runs/")) await page.getByText("日志完整", { exact: true }).waitFor();
      seen.push(await page.locator("body").innerText());
    }
    const all = seen.join("\n");
    for (const term of ["您", "抖动", "台账", "日志已完整"]) assert.ok(!all.includes(term), `the page says ${term}`);
    for (const term of ["随机延迟", "错过记录"]) assert.ok(all.includes(term), `no page says ${term}`);
  });
}

/** inView reports whether an element is in the window. */
const inView = (locator) =>
  locator.evaluate((el) => {
    const { left, right } = el.getBoundingClientRect();
    return getComputedStyle(el).visibility !== "hidden" && left < innerWidth && right > 0;
  });

/** misfits runs in the page. It returns by how much the page is wider than its window, and which rows of lists are higher than three lines. */
function misfits() {
  const faults = [];
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (over > 0) {
    const outside = [...document.querySelectorAll("main *")].filter(
      (e) =>
        e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
        !e.closest(".table-box, .cm-scroller"),
    );
    faults.push(
      `${over} px wider than the window: ${outside
        .slice(0, 4)
        .map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`)
        .join(" | ")}`,
    );
  }
  for (const row of document.querySelectorAll("main table.list tbody tr:not(.detail)")) {
    const style = getComputedStyle(row.cells[0]);
    const lines =
      (row.getBoundingClientRect().height - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) /
      parseFloat(style.lineHeight);
    if (lines > 3.3)
      faults.push(`a row has ${lines.toFixed(1)} lines: ${row.innerText.slice(0, 60).replace(/\s+/g, " ")}`);
  }
  for (const cell of document.querySelectorAll("main table.list tbody .grow")) {
    const visible = cell.getClientRects().length > 0;
    if (visible && cell.getBoundingClientRect().width < 90)
      faults.push(`the main column is ${Math.round(cell.getBoundingClientRect().width)} px wide`);
  }
  return [...new Set(faults)].slice(0, 4);
}

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
async function longNames({ call: api, nats }, job) {
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
