// Scenes of a person on call: what needs attention, why a job fails, the slowest jobs, pauses. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { counted, focusedIn, heading, scene } from "./scene.mjs";

export function attention(stage) {
  const call = (...of) => stage.call(...of);

  /** breaks creates a job that succeeds, gets a new script, and fails. It returns the job and both runs. */
  async function breaks(name) {
    const job = await call("POST", "/jobs", {
      name,
      group: "demo",
      runbook_url: "https://runbooks.example.com/billing",
      schedule: { kind: "none" },
      script: { language: "sh", code: "exit 0\n" },
    });
    const run = async (state) => {
      const [id] = (await call("POST", `/jobs/${job.id}/trigger`, {})).run_ids;
      await until(`${id} to end`, async () => (await call("GET", `/runs/${id}`)).state === state);
      return id;
    };
    const good = await run("succeeded");
    await call("POST", `/jobs/${job.id}/scripts`, {
      language: "sh",
      code: "echo no connection to the ledger >&2\nexit 3\n",
      remark: "asks the ledger",
    });
    const bad = await run("failed");
    const item = await until(`${name} to need attention`, async () =>
      (await call("GET", "/attention")).items.find((i) => i.job_id === job.id),
    );
    await until("the last success", async () => (await call("GET", `/jobs/${job.id}`)).health?.last_success);
    return { job, good, bad, item };
  }

  scene(
    stage,
    "the overview starts with what needs attention; an item is acknowledged with the keyboard and comes last",
    { as: "admin", viewport: { width: 360, height: 740 } },
    async (page) => {
      const { job, good, bad, item } = await breaks("month-end");
      await page.goto("/");
      const list = page.getByRole("region", { name: "Needs attention" });
      const row = list.locator(`[data-item="${item.id}"]`);
      await row.getByRole("link", { name: "month-end" }).waitFor();
      // The numbers are on one line above the list, and the newest failure is on the first screen of a phone.
      const tops = await page
        .locator(".tile:visible")
        .evaluateAll((all) => [...new Set(all.map((t) => t.getBoundingClientRect().top))]);
      assert.equal(tops.length, 1, "the numbers take several lines");
      const box = await list.locator("[data-item]").first().boundingBox();
      assert.ok(box.y > tops[0], "the numbers are below the list");
      assert.ok(box.y + box.height <= 740, `the first failure ends ${box.y + box.height} px below the top`);
      const [helps, runbook] = await Promise.all(
        [row.locator(".attention-helps"), row.getByRole("link", { name: "Runbook" })].map((l) => l.boundingBox()),
      );
      assert.ok(runbook.x + runbook.width <= helps.x + helps.width, "the link to the runbook is cut");
      await page.setViewportSize({ width: 1280, height: 900 });
      const why = row.getByRole("link", { name: /^handler error · / });
      assert.equal(await why.getAttribute("href"), `/runs/${bad}`);
      assert.equal(await row.getByRole("link", { name: /last success/ }).getAttribute("href"), `/runs/${good}`);
      await row.getByText("1 failed in a row").waitFor();

      await row.getByRole("link", { name: "month-end" }).focus();
      await page.keyboard.press("a");
      const dialog = page.getByRole("dialog", { name: "Acknowledge month-end" });
      await focusedIn(dialog);
      await page.keyboard.type("mei asks the ledger's team");
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await row.getByText("Acknowledge", { exact: true }).waitFor({ state: "detached" });
      await list.getByText(/^Acknowledged: /).click();
      await row.getByText(/admin · .* · mei asks the ledger's team/).waitFor();
      // The next failure of the same streak keeps the acknowledgement. A success ends both.
      await call("POST", `/jobs/${job.id}/scripts`, { language: "sh", code: "exit 0\n", remark: "fixed" });
      await call("POST", `/jobs/${job.id}/trigger`, {});
      await row.waitFor({ state: "detached" });
    },
  );

  scene(
    stage,
    "billing failed: why, since when and what changed, in two interactions from the overview",
    { as: "admin" },
    async (page) => {
      const { good, bad } = await breaks("billing");
      await page.goto("/");
      const { count, click } = counted(page);
      const list = page.getByRole("region", { name: "Needs attention" });
      await click(list.getByRole("link", { name: "billing", exact: true }));
      await heading(page, "billing");
      const health = page.getByRole("region", { name: "Health" });
      await health.getByText(/Failing for/).waitFor();
      await health.getByText(/^handler error · /).waitFor();
      await health.getByText("1 failed in a row").waitFor();
      assert.equal(await health.locator("dl").locator(`a[href="/runs/${bad}"]`).count(), 1);
      assert.equal(await health.locator("dl").locator(`a[href="/runs/${good}"]`).count(), 1);
      await health.getByText(/edited by admin at .* · script version 1 → 2/).waitFor();
      await click(health.getByRole("link", { name: "version 1 → 2" }));
      const dialog = page.getByRole("dialog", { name: "Difference between version 1 and version 2" });
      await dialog.getByText(/^Version 2 by admin/).waitFor();
      await dialog.locator(".added").getByText("echo no connection to the ledger >&2").waitFor();
      assert.ok(count.n <= 2, `${count.n} interactions`);
      // The page of the failed run says the same.
      await page.goto(`/runs/${bad}`);
      await page.locator(".verdict").getByRole("link", { name: "version 1 → 2" }).waitFor();
    },
  );

  scene(
    stage,
    "the five slowest of 300 jobs in two interactions from the overview; the list filters by health, and its order is in the address",
    { as: "admin" },
    async (page) => {
      const groups = Array.from({ length: 22 }, (_, i) => `team-${String(i + 1).padStart(2, "0")}`);
      await Promise.all(groups.map((name) => call("POST", "/groups", { name })));
      for (let i = 0; i < 295; i += 20) {
        await Promise.all(
          Array.from({ length: Math.min(20, 295 - i) }, (_, k) =>
            call("POST", "/jobs", {
              name: `report-${String(i + k).padStart(3, "0")}`,
              group: groups[(i + k) % groups.length],
              handler: "echo",
              schedule: { kind: "cron", expr: "0 4 1 1 *" },
            }),
          ),
        );
      }
      // Each is a quarter slower than the one before it.
      const slow = [];
      for (const seconds of [10, 12.5, 15.6, 19.5, 24.4]) {
        const job = await call("POST", "/jobs", {
          name: `slow-${seconds}`,
          group: "demo",
          handler: "sleep",
          param: `${seconds}s`,
          schedule: { kind: "none" },
        });
        slow.push(job);
        await call("POST", `/jobs/${job.id}/trigger`, {});
      }
      await until("the durations", async () =>
        (await Promise.all(slow.map((j) => call("GET", `/jobs/${j.id}`)))).every((j) => j.health?.p95_ms > 0),
      );
      await page.goto("/");
      await heading(page, "Overview");
      const { count, click } = counted(page);
      await click(page.getByRole("navigation", { name: "Menu" }).getByRole("link", { name: "Jobs", exact: true }));
      await click(page.getByRole("button", { name: "p95 / p50" }));
      const first = async () => (await page.locator("tbody [data-row]").allInnerTexts()).slice(0, 5);
      const slowest = slow.map((j) => j.name).reverse();
      await until("the slowest jobs", async () => String(await first()) === String(slowest));
      assert.ok(count.n <= 2, `${count.n} interactions`);
      assert.equal(new URL(page.url()).search, "?sort=p95_ms");
      assert.equal(await page.getByRole("columnheader", { name: "p95 / p50" }).getAttribute("aria-sort"), "descending");

      const { item } = await breaks("fails-in-the-list");
      await page.getByRole("group", { name: "Health" }).getByRole("button", { name: "failing" }).click();
      await page.waitForURL(/health=failing/);
      await page.getByRole("link", { name: item.job_name, exact: true }).waitFor();
      assert.equal(await page.locator("tbody tr .state-succeeded.quiet-ok").count(), 0);
      await page.reload();
      await page.getByRole("link", { name: item.job_name, exact: true }).waitFor();
    },
  );

  scene(
    stage,
    "a job is paused with a reason, is marked in the list and on its page, and resumes",
    { as: "admin" },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "pausable",
        group: "demo",
        handler: "echo",
        schedule: { kind: "cron", expr: "0 4 * * *" },
      });
      await page.goto("/jobs?q=pausable");
      await page.getByRole("button", { name: "More actions for pausable" }).click();
      await page.getByRole("menuitem", { name: "Pause…" }).click();
      const dialog = page.getByRole("dialog", { name: "Pause pausable" });
      await dialog.getByLabel("Reason").fill("the ledger moves house");
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      const row = page.locator("tbody tr").first();
      await row.getByText("paused", { exact: true }).waitFor();
      assert.ok((await call("GET", `/jobs/${job.id}`)).paused_at, "the job is not paused");
      await page.goto(`/jobs/${job.id}`);
      const banner = page.getByRole("alert").filter({ hasText: "Paused by admin: the ledger moves house" });
      await banner.getByRole("button", { name: "Resume" }).click();
      await banner.waitFor({ state: "detached" });
      assert.equal((await call("GET", `/jobs/${job.id}`)).paused_at, null);
    },
  );

  scene(stage, "the page of a run says how long it waited and why, and where it ran", { as: "admin" }, async (page) => {
    const job = await call("POST", "/jobs", {
      name: "one-at-a-time",
      group: "demo",
      handler: "sleep",
      param: "2s",
      schedule: { kind: "none" },
    });
    await call("POST", `/jobs/${job.id}/trigger`, {});
    const [id] = (await call("POST", `/jobs/${job.id}/trigger`, {})).run_ids;
    const run = await until("the second run", async () => {
      const r = await call("GET", `/runs/${id}`);
      return r.state === "succeeded" && r;
    });
    assert.ok(run.waited, "the run did not wait");
    await page.goto(`/runs/${id}`);
    await page
      .locator(".verdict")
      .getByText(/^Waited /)
      .waitFor();
    await page.locator(".verdict").getByText(run.waited.text).waitFor();
    const details = page.getByRole("region", { name: "Details" });
    const { host, executor_version } = run.attempts[0];
    await details.getByText(host, { exact: true }).waitFor();
    await details.getByText(executor_version, { exact: true }).waitFor();
  });

  scene(
    stage,
    "the palette finds jobs by the beginnings of words, groups, tags and instances, with one request for each pause in typing",
    { as: "admin" },
    async (page) => {
      await call("POST", "/groups", { name: "palette-group" });
      await call("POST", "/jobs", {
        name: "zebra-stripes-report",
        group: "palette-group",
        handler: "echo",
        tags: ["zebras"],
        schedule: { kind: "none" },
      });
      await page.goto("/");
      await heading(page, "Overview");
      const asked = [];
      page.on("request", (r) => r.url().includes("/api/v1/search") && asked.push(r.url()));
      const open = async (text, name, address) => {
        await page.keyboard.press("Control+k");
        await focusedIn(page.getByRole("dialog"));
        const before = asked.length;
        await page.getByRole("combobox").fill(text);
        const options = page.getByRole("option");
        await options.filter({ hasText: name }).first().waitFor();
        assert.equal(asked.length, before + 1, `the requests: ${asked}`);
        const names = await options.allInnerTexts();
        for (let i = names.findIndex((n) => n.startsWith(name)); i > 0; i--) await page.keyboard.press("ArrowDown");
        await page.keyboard.press("Enter");
        await page.waitForURL(address);
      };
      await open("zeb rep", "zebra-stripes-report", /\/jobs\/\d+$/);
      await open("palette-g", "palette-group", "/jobs?group=palette-group");
      await open("zebras", "zebras", "/jobs?tag=zebras");
      await open("demo-1", "demo-1", "/runs?instance=demo-1");
    },
  );

  scene(
    stage,
    "the jobs are counted by group with one request, and a count opens these jobs",
    { as: "admin" },
    async (page) => {
      const { job } = await breaks("counted-in-its-group");
      await until("the counts", async () =>
        (await call("GET", "/groups?health=true&limit=500")).items.some(
          (g) => g.name === "demo" && g.health.failing > 0,
        ),
      );
      const asked = [];
      page.on("request", (r) => r.url().includes("/api/v1/groups?health") && asked.push(r.url()));
      await page.goto("/jobs");
      await page.getByText("By group", { exact: true }).click();
      await page.waitForURL("/jobs?view=groups");
      const row = page.locator("tbody tr").filter({ has: page.getByRole("link", { name: "demo", exact: true }) });
      await row.waitFor();
      assert.equal(asked.length, 1, `the requests: ${asked}`);
      await row.locator("a.bad").click();
      await page.waitForURL(/group=demo&health=failing/);
      await page.getByRole("link", { name: job.name, exact: true }).waitFor();
    },
  );
}
