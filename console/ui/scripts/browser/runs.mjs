// Scenes of runs: logs and live lists. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { until } from "./belfry.mjs";
import { counted, heading, scene, zoneAt } from "./scene.mjs";

export function runs(stage) {
  const call = (...of) => stage.call(...of);
  /** script creates a job with a script and without a schedule. */
  const script = (name, code) =>
    call("POST", "/jobs", { name, group: "demo", schedule: { kind: "none" }, script: { language: "sh", code } });

  scene(stage, "a log is followed during the run, and the run is killed", { as: "admin" }, async (page) => {
    const job = await script(
      "talker",
      'i=0; while :; do i=$((i+1)); echo "line $i of many"; echo "oops $i" >&2; sleep 0.1; done',
    );
    await page.goto(`/jobs/${job.id}`);
    await page.getByRole("button", { name: "Run now" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
    await page.waitForURL(/\/runs\//);
    const log = page.getByRole("log");
    await log.getByText("line 3 of many", { exact: true }).waitFor();
    await log.getByText("line 9 of many", { exact: true }).waitFor();
    await page.getByText("Live", { exact: true }).waitFor();
    await page.getByRole("button", { name: "stderr" }).click();
    await log.getByText("oops 3", { exact: true }).waitFor();
    await log.getByText("line 3 of many", { exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "stderr" }).click();
    await page.getByLabel("Search the log").fill("line 5 of");
    await log.getByText("line 5 of many", { exact: true }).waitFor();
    await log.getByText("line 3 of many", { exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Kill" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
    await page.locator("h1 .state-cancelled").waitFor();
    await page.getByText("Complete", { exact: true }).waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download" }).click(),
    ]);
    assert.match(readFileSync(await download.path(), "utf8"), /line 5 of many/);
  });

  scene(
    stage,
    "the list of runs and the overview show changes until they are paused",
    { as: "admin" },
    async (page) => {
      const job = await script("long", "sleep 600");
      const trigger = async () => (await call("POST", `/jobs/${job.id}/trigger`, {})).run_ids[0];
      await call("PATCH", `/jobs/${job.id}`, { block: "parallel" });
      // The timers that read the lists every 30 seconds are switched off, so every change on the page was pushed.
      await page.addInitScript(() => {
        const every = globalThis.setInterval;
        globalThis.setInterval = (f, ms, ...more) => every(f, ms >= 30_000 ? 2 ** 31 - 1 : ms, ...more);
      });
      await page.goto(`/runs?job_id=${job.id}`);
      await page.getByText("Live", { exact: true }).waitFor();
      await trigger();
      await page.locator("tbody .state-running").waitFor();
      await trigger();
      await page.locator("tbody .state-running").nth(1).waitFor();
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByText("Paused", { exact: true }).waitFor();
      const third = await trigger();
      await until("the third run", async () => (await call("GET", `/runs/${third}`)).state === "running");
      assert.equal(await page.locator("tbody tr").count(), 2, "a paused list shows a change");
      await page.getByRole("button", { name: "Resume" }).click();
      await page.locator("tbody .state-running").nth(2).waitFor();

      // All runs that match the filters are killed at once.
      const bar = page.locator(".bulk-bar");
      // Above 100 runs, their number is typed.
      await page.route("**/runs/bulk?dry_run=true", (route) =>
        route.fulfill({ json: { matched: 101, jobs: [], done: 0, skipped: 0, failed: 0, failures: [], run_ids: [] } }),
      );
      await bar.getByRole("button", { name: "Kill" }).click();
      const many = page.getByRole("dialog", { name: "Kill 101 runs?" });
      assert.ok(await many.getByRole("button", { name: "Kill 101" }).isDisabled(), "many runs are killed at once");
      await many.getByLabel("Type 101 to continue").fill("101");
      assert.ok(await many.getByRole("button", { name: "Kill 101" }).isEnabled());
      await many.getByRole("button", { name: "Cancel" }).click();
      await page.unroute("**/runs/bulk?dry_run=true");
      await bar.getByRole("button", { name: "Kill" }).click();
      const dialog = page.getByRole("dialog", { name: "Kill 3 runs?" });
      await dialog.getByRole("row", { name: /^3 long/ }).waitFor();
      await dialog.getByText("A kill cannot be undone.").waitFor();
      await dialog.getByRole("button", { name: "Kill 3" }).click();
      await page.waitForURL(/\/bulk\/\d+$/);
      await page.getByText("kill requested: 3").waitFor();
      await page.getByText("A kill cannot be undone.").waitFor();
      await page.goBack();
      await page.locator("tbody .state-cancelled").nth(2).waitFor();

      await page.goto("/?span=1h");
      await page.getByText("Live", { exact: true }).waitFor();
      const finished = page.locator(".tile", { hasText: "Success rate" }).locator(".tile-note");
      const before = await finished.innerText();
      await page.waitForFunction(
        (before) => [...document.querySelectorAll(".tile-note")].every((n) => n.textContent !== before),
        before,
      );
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByText("Paused", { exact: true }).waitFor();
    },
  );

  scene(
    stage,
    "a log of 100,000 lines can be searched and scrolled, and the page contains only the visible lines",
    { as: "admin" },
    async (page) => {
      const job = await script("verbose", "seq 1 100000");
      const {
        run_ids: [run],
      } = await call("POST", `/jobs/${job.id}/trigger`, {});
      await page.goto(`/runs/${run}`);
      await page.getByText("100000 lines", { exact: true }).waitFor();
      const log = page.getByRole("log");
      await log.getByText("100000", { exact: true }).last().waitFor(); // the view follows the end
      assert.ok((await log.locator(".log-line").count()) < 200, "the page contains lines that are not visible");
      await log.press("Home");
      await log.locator(".log-text").getByText("1", { exact: true }).waitFor();
      await page.getByLabel("Search the log").fill("7777");
      await page.getByText("19 of 100000 lines").waitFor();
    },
  );

  scene(
    stage,
    "all failed runs of last night run again in 4 interactions; a bulk action is stopped, found again, and undone",
    { as: "admin", timezoneId: zoneAt(3) }, // the night in which the runs fail
    async (page) => {
      // The group has no executor, so that its runs fail.
      await call("POST", "/groups", { name: "night-shift" });
      const job = await call("POST", "/jobs", {
        name: "night-report",
        group: "night-shift",
        handler: "report",
        block: "parallel",
        start_deadline: "1s",
        schedule: { kind: "cron", expr: "0 * * * *" },
      });
      const hour = Math.floor(Date.now() / 3_600_000);
      const at = (hours) => new Date((hour - hours) * 3_600_000).toISOString();
      await call("POST", `/jobs/${job.id}/backfill`, { from: at(5), to: at(1.5) });
      await until("the failures", async () => {
        return (await call("GET", `/runs?job_id=${job.id}&state=failed`)).items.length === 4;
      });
      await call("PATCH", `/jobs/${job.id}`, { start_deadline: "10m" }); // the new runs wait

      await page.goto("/?group=night-shift");
      const { count, click } = counted(page);
      await click(page.locator(".tile", { hasText: "Failed" }));
      await click(page.getByRole("button", { name: "Last night" }));
      await page.locator("tbody .state-failed").nth(3).waitFor();
      await click(page.locator(".bulk-bar").getByRole("button", { name: "Run again" }));
      const dialog = page.getByRole("dialog", { name: "Run 4 runs again?" });
      await dialog.getByRole("row", { name: /^4 night-report/ }).waitFor();
      await click(dialog.getByRole("button", { name: "Run 4 again" }));
      await page.waitForURL(/\/bulk\/\d+$/);
      assert.ok(count.n <= 4, `${count.n} interactions`);
      await page.getByText("new runs: 4").waitFor();
      await page.getByRole("link", { name: "Show them" }).click();
      await page.locator("tbody tr").nth(3).waitFor();
      await page.goBack();

      const { pathname } = new URL(page.url());

      // The group has no room for more runs, so another action waits, and is stopped. The live runs of a group are counted every few seconds.
      await until("the count of live runs", async () => {
        return (await call("GET", "/groups/night-shift/usage")).live_runs.used === 4;
      });
      await call("PATCH", "/groups/night-shift", { limits: { max_live_runs: 1 } });
      const { id } = await call("POST", "/runs/bulk", { action: "retry", filter: { job_id: job.id } });
      await page.goto(`/bulk/${id}`);
      await page.getByText(/max-live-runs/).waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await page.locator("h1 .pill", { hasText: "stopped" }).waitFor();
      await page.getByText("stopped by admin").waitFor();

      // The first action is found again, and undone by killing the new runs.
      await page.goto("/runs");
      await heading(page, "Runs");
      await page.keyboard.press("g");
      await page.keyboard.press("b");
      await page.locator(`tbody a[href="${pathname}"]`).click();
      await page.getByRole("button", { name: "Kill the new runs" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Kill 4" }).click();
      await page.getByText("kill requested: 4").waitFor();
      assert.notEqual(new URL(page.url()).pathname, pathname);
      assert.equal((await call("GET", `/runs?job_id=${job.id}&state=queued,running`)).items.length, 0);
    },
  );

  scene(
    stage,
    "a failed run shows its error and runbook, then its log with the first error, its attempts, and runs again with another param",
    { as: "admin" },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "fails-twice",
        group: "demo",
        schedule: { kind: "none" },
        runbook_url: "https://wiki.example.com/fails-twice",
        param: '{"token": "opensesame", "day": "monday"}',
        retries: 1,
        retry_backoff: { initial: "10ms" },
        script: {
          language: "sh",
          code: 'echo "the param has ${#BELFRY_PARAM} characters"; case "$BELFRY_PARAM" in good) exit 0;; esac\nseq 1 200\necho "no such table: orders" >&2\nseq 201 400\nexit 1\n',
        },
      });
      const {
        run_ids: [run],
      } = await call("POST", `/jobs/${job.id}/trigger`, {});
      await until("the failure", async () => (await call("GET", `/runs/${run}`)).state === "failed");
      await page.goto(`/runs/${run}`);
      await page.locator(".verdict .message-block").getByText("no such table: orders").waitFor();
      const runbook = page.locator(".verdict").getByRole("link", { name: "Runbook" });
      assert.equal(await runbook.getAttribute("href"), job.runbook_url);
      assert.match(await runbook.getAttribute("rel"), /noopener/);
      const top = async (name) => (await page.getByRole("region", { name, exact: true }).boundingBox()).y;
      const tops = [await top("Log"), await top("Attempts"), await top("Timeline")];
      assert.deepEqual(
        [...tops].sort((a, b) => a - b),
        tops,
        "the log is not above the timeline",
      );
      const attempts = page.getByRole("region", { name: "Attempts" });
      await attempts.getByText(/^2 attempts in /).waitFor();
      assert.equal(await attempts.locator("tbody .state.state-failed").count(), 2);

      // A line has an address, and so has a search.
      const log = page.getByRole("log");
      await page.getByRole("button", { name: "Jump to the first error" }).click();
      await log.locator(".log-target").getByText("no such table: orders").waitFor();
      await page.waitForURL(/\?line=\d+$/);
      await page.reload();
      await log.locator(".log-target").getByText("no such table: orders").waitFor();
      await attempts.getByRole("link", { name: "2", exact: true }).click();
      // stdout and stderr are separate pipes, so either may have the first line.
      await log.locator(".log-target").getByText("2:1", { exact: true }).waitFor();
      await page.getByLabel("Search the log").fill("37");
      await page.waitForURL(/[?&]q=37(&|$)/);
      await page.reload();
      await page.getByText("28 of 804 lines").waitFor();

      // An unchanged param stays as it is; another one is sent.
      const again = page.getByRole("button", { name: "Run again with another param or instance" });
      const param = page.getByRole("dialog").getByRole("textbox", { name: "Param" });
      const submit = page.getByRole("dialog").getByRole("button", { name: "Run again" });
      await again.click();
      assert.equal(await param.inputValue(), job.param);
      await submit.click();
      await page.waitForURL((url) => !url.pathname.endsWith(run));
      await page.locator("h1 .state-failed").waitFor();
      // The page follows the end of a log that still grows, so its first line may not be in view.
      await page.getByLabel("Search the log").fill("the param has 40");
      await page.getByText("2 of 804 lines").waitFor();
      await again.click();
      await param.fill("good");
      await submit.click();
      await page.locator("h1 .state-succeeded").waitFor();
      await log.getByText("the param has 4 characters").waitFor();
    },
  );

  scene(
    stage,
    "the filters of the runs are chips in the address, and planned runs are hidden until they are wanted",
    { as: "admin" },
    async (page) => {
      const listed = (planned) =>
        page.waitForRequest((r) => {
          const { pathname, searchParams } = new URL(r.url());
          return pathname === "/api/v1/runs" && searchParams.get("planned") === planned;
        });
      await Promise.all([listed("false"), page.goto("/runs")]);
      await Promise.all([listed("true"), page.getByRole("button", { name: "Planned" }).click()]);
      await page.waitForURL("/runs?planned=true");
      await page.getByRole("button", { name: "Planned" }).click();
      await page.getByRole("textbox", { name: "Cause" }).click();
      await page.getByRole("option", { name: "by hand" }).click();
      await page.getByRole("button", { name: "24 hours" }).click();
      await page.getByLabel("Instance").fill("nobody");
      await page.keyboard.press("Enter");
      await page.waitForURL(/\?cause=manual&instance=nobody&from=[^&]+$/);
      await page.getByText("No run matches the filters.").waitFor();
      await page.getByRole("button", { name: "Instance: nobody" }).click();
      await page.getByRole("button", { name: /^Time: / }).click();
      await page.waitForURL("/runs?cause=manual");
      await page.locator("[data-row]").first().waitFor();

      // A search begins with the failed runs of the last day, says how far back it went, and offers no action on all runs.
      await page.goto("/runs");
      await page.getByLabel("Search in messages, outputs and params").fill("such table");
      await page.waitForURL(/\?state=failed&from=[^&]+&q=such\+table$/);
      await page.getByText("All runs of this range were searched.").waitFor();
      await page.locator("tbody tr", { hasText: "fails-twice" }).first().waitFor();
      assert.equal(await page.locator("tbody tr", { hasNotText: "fails-twice" }).count(), 0);
      assert.equal(await page.locator(".bulk-bar").count(), 0);
      const answer = { items: [], next_cursor: "more", searched_back_to: "2026-11-25T02:00:00.000Z" };
      await page.route("**/api/v1/runs?*", (route) => route.fulfill({ json: answer }));
      await page.reload();
      await page.getByText("Searched back to 2026-11-25 03:00:00.").waitFor();
      await page.unroute("**/api/v1/runs?*");
      await page.getByRole("button", { name: "Continue the search" }).waitFor();
    },
  );
}
