// Tests of the web console in Chromium on a real standalone: node --test scripts/browser.test.mjs.
// BELFRY is the binary; without it, the tests build one. CHROMIUM is the browser. A failed scene saves a screenshot below
// BELFRY_SHOTS.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { browserPath, heartbeat, logIn, provider, start, until } from "./browser/belfry.mjs";
import { calendars } from "./browser/calendars.mjs";
import { changes } from "./browser/changes.mjs";
import { drafts } from "./browser/drafts.mjs";
import { executors } from "./browser/executors.mjs";
import { lists } from "./browser/lists.mjs";
import { messages } from "./browser/messages.mjs";
import { plain } from "./browser/plain.mjs";
import { widths } from "./browser/widths.mjs";
import { axeFaults, axeSource, counted, heading, ready, scene } from "./browser/scene.mjs";

const stage = {}; // base, browser, the identity provider, and the sessions of the users admin and viewer
let call; // calls the API as admin

if (!browserPath) {
  test(
    "the web console in a browser",
    { skip: !process.env.CI && "NOT COVERED: there is no Chromium; install one or set CHROMIUM" },
    () => assert.fail("there is no Chromium"),
  );
} else {
  before(
    async () => {
      stage.provider = await provider();
      const server = await start(
        "--demo",
        "--allow-script",
        "sh",
        "--oidc-issuer",
        stage.provider.issuer,
        "--oidc-client-id",
        "belfry",
        "--oidc-client-secret",
        "belfry-secret",
        "--oidc-name",
        "The Company",
        "--oidc-role",
        "ops=operator",
      );
      Object.assign(stage, server, { admin: server });
      call = server.call;
      await stage.provider.serve(server.base);
      await call("POST", "/users", {
        username: "onlooker",
        password: "looks-at-things",
        role: "viewer",
        groups: ["demo"],
      });
      stage.viewer = await logIn(server.base, "onlooker", "looks-at-things");
      stage.browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
      await until("the demo's executor", async () => (await call("GET", "/groups/demo")).instances > 0);
    },
    { timeout: 600_000 },
  );
  after(async () => {
    await stage.browser?.close();
    await stage.stop?.();
    await stage.provider?.stop();
  });
  scenes();
  changes(stage);
  calendars(stage);
  messages(stage);
  drafts(stage);
  widths(stage);
  plain(stage);
  executors(stage);
  lists(stage);
}

function scenes() {
  scene(
    stage,
    "from the log-in page to a successful run of a new job in under 10 interactions",
    { refusals: [422] },
    async (page) => {
      await page.goto("/");
      const newcomer = counted(page);
      await newcomer.fill(page.getByLabel("User"), "admin");
      await newcomer.fill(page.getByLabel("Password", { exact: true }), stage.password);
      await newcomer.press("Enter");
      await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
      await newcomer.press("n");
      await newcomer.fill(page.getByRole("textbox", { name: "Name" }), "first-job");
      await newcomer.fill(page.getByRole("textbox", { name: /^Handler/ }), "echo");
      await newcomer.click(page.getByRole("button", { name: "Save and run now" }));
      await page.waitForURL(/\/runs\/[0-9a-f-]{36}$/);
      await page.locator("h1 .state-succeeded").waitFor();
      assert.ok(newcomer.count.n < 10, `${newcomer.count.n} interactions`);
    },
  );

  scene(
    stage,
    "a failed log-in shows an error, and a successful one opens the requested page",
    {},
    async (page, context) => {
      await page.goto("/runs?state=failed");
      await page.getByLabel("User").fill("admin");
      await page.getByLabel("Password", { exact: true }).fill("wrong, surely");
      await page.getByRole("button", { name: "Log in" }).click();
      await page.getByText("The user or the password is wrong.").waitFor();
      await page.getByLabel("Password", { exact: true }).fill(stage.password);
      await page.keyboard.press("Enter");
      await page.waitForURL("/runs?state=failed");
      await heading(page, "Runs");
      // After the session has ended elsewhere, the console opens the log-in page, and then the requested page.
      await context.clearCookies();
      await page.keyboard.press("g");
      await page.keyboard.press("j");
      await page.waitForURL(/\/login\?to=/);
      // The page of runs may notice the ended session before the keys are pressed.
      assert.ok(["/jobs", "/runs?state=failed"].includes(new URL(page.url()).searchParams.get("to")), page.url());
      // The log-in page never redirects to another site.
      for (const to of ["//evil.example/", "https://evil.example/", "/\\evil.example/", "javascript:alert(1)"]) {
        await page.goto(`/login?to=${encodeURIComponent(to)}`);
        await page.getByLabel("User").fill("admin");
        await page.getByLabel("Password", { exact: true }).fill(stage.password);
        await page.keyboard.press("Enter");
        await heading(page, "Overview");
        assert.equal(new URL(page.url()).origin, stage.base);
        await context.clearCookies();
        if (to.startsWith("//")) continue;
        break; // log-in attempts are limited, so one more address is enough
      }
    },
  );

  scene(
    stage,
    "a job is created with the form, and its runs appear without a reload",
    { as: "admin", refusals: [422] },
    async (page) => {
      await page.goto("/jobs/new");
      // A faulty field is marked during typing, and fire times appear when it is correct.
      await page.getByLabel("Cron expression").fill("61 2 * * *");
      await page.locator(".cron-bad").getByText("61").waitFor();
      await page.getByLabel("Cron expression").fill("* * * * * *");
      await page.locator(".preview tbody tr").nth(9).waitFor();
      // A fault that the server reports is shown at its field.
      await page.getByRole("textbox", { name: /^Handler/ }).fill("echo");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.locator(".mantine-TextInput-error").first().waitFor();
      await page.getByRole("textbox", { name: "Name" }).fill("every-second");
      await page.getByLabel("Param").fill("hello <b>& \u001b[31mred");
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.waitForURL(/\/jobs\/\d+$/);
      await heading(page, "every-second");
      // The runs appear without a reload.
      const rows = page.getByRole("region", { name: "Recent runs" }).locator("tbody .state-succeeded");
      await rows.nth(2).waitFor();
      await page.locator("label", { hasText: "Enabled" }).click();
      await page.getByText("Disabled: it does not fire by schedule.").waitFor();
      await rows.first().click();
      await page.locator(".log-line").getByText("hello <b>&").first().waitFor();
      await page.locator(".log-line .fg-red").getByText("red").waitFor();
    },
  );

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
      await page.locator(".bulk-bar").getByRole("button", { name: "Kill" }).click();
      const dialog = page.getByRole("dialog", { name: "Kill all runs that match the filters?" });
      await dialog.getByRole("button", { name: "Kill" }).click();
      await dialog.getByText("Done: 3, skipped: 0, failed: 0").waitFor();
      await dialog.getByRole("button", { name: "Close" }).last().click();
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
    "the next run uses the new version of an edited script, and an old version can be restored",
    { as: "admin" },
    async (page) => {
      const job = await script("edited", "echo the old one\n");
      await page.goto(`/jobs/${job.id}`);
      await page.getByRole("button", { name: "Edit the script" }).click();
      await page.getByRole("textbox", { name: "Code" }).click();
      await page.keyboard.press("Control+a");
      await page.keyboard.type("echo the new one");
      await page.getByLabel("Remark").fill("says something else");
      await page.getByRole("button", { name: "Save and run now" }).click();
      await page.waitForURL(/\/runs\//);
      await page.locator("h1 .state-succeeded").waitFor();
      await page.getByRole("log").getByText("the new one").waitFor();
      await page.goBack();
      await page.getByText("says something else").waitFor();
      const section = page.getByRole("region", { name: "Script" });
      await section.getByRole("textbox", { name: "Compare with…" }).click();
      await page.getByRole("option", { name: "Difference from version 1" }).click();
      await section.locator(".diff .removed").getByText("the old one").waitFor();
      await section.locator(".diff .added").getByText("the new one").waitFor();
      await section.getByRole("textbox", { name: "Version" }).click();
      await page.getByRole("option", { name: /^1 ·/ }).click();
      await section.getByRole("button", { name: "Restore version 1" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Restore version 1" }).click();
      await page.getByText("Saved as version 3").waitFor();
      const {
        run_ids: [run],
      } = await call("POST", `/jobs/${job.id}/trigger`, {});
      await page.goto(`/runs/${run}`);
      await page.getByRole("log").getByText("the old one").waitFor();
    },
  );

  scene(
    stage,
    "a job's page shows its parents and children, and explains why the job did not run",
    { as: "admin" },
    async (page) => {
      const parent = (await call("GET", "/jobs?q=nightly-report")).items.find((j) => j.name === "nightly-report");
      await page.goto(`/jobs/${parent.id}`);
      const graph = page.getByRole("region", { name: "Parents and children" });
      await page.getByRole("button", { name: "Ask" }).click();
      await page.locator(".answer").waitFor();
      await page.getByRole("button", { name: "Check every fire time of the last 24 hours" }).click();
      await page.getByText(/^In the last 24 hours: |^No fire times in/).waitFor();
      await graph.getByRole("link", { name: "send-report" }).focus();
      await page.keyboard.press("Enter");
      await heading(page, "send-report");
      // The graph also has parents that have never run.
      await graph.getByRole("link", { name: "nightly-report" }).waitFor();
      const [child] = (await call("GET", "/jobs?q=send-report")).items;
      await call("POST", "/jobs", {
        name: "never-ran",
        group: "demo",
        handler: "echo",
        schedule: { kind: "none" },
        children: [{ job_id: child.id }],
      });
      await page.reload();
      await graph.getByRole("link", { name: "never-ran" }).waitFor();
    },
  );

  scene(
    stage,
    "the overview lists the latest missed fire times, and links to the explanation",
    { as: "admin" },
    async (page) => {
      await call("POST", "/groups", { name: "pausing" });
      await call("POST", "/groups/pausing/pause", { reason: "new disks" });
      const job = await call("POST", "/jobs", {
        name: "held-up",
        group: "pausing",
        handler: "echo",
        schedule: { kind: "fixed_rate", every: "1s" },
      });
      await until("fire times in the pause", () => Date.now() > Date.parse(job.created_at) + 2500);
      await call("POST", `/jobs/${job.id}/disable`);
      await call("POST", "/groups/pausing/resume");
      await until("the ledger's entry", async () => (await call("GET", `/jobs/${job.id}/missed`)).items[0]);
      await page.goto("/?group=pausing");
      const missed = page.getByRole("region", { name: "Latest missed" });
      await missed.getByText(/new disks/).waitFor();
      await missed.getByRole("link", { name: /held-up/ }).click();
      await heading(page, "held-up");
      await page
        .locator(".answer")
        .getByText(/new disks/)
        .waitFor();
      assert.ok(
        await page.locator(".answer").evaluate((el) => {
          const { top, bottom } = el.getBoundingClientRect();
          return top >= 0 && bottom <= innerHeight;
        }),
        "the answer is not visible",
      );
    },
  );

  scene(
    stage,
    "the executors page shows the usage of a group's limits, and an admin changes a limit",
    { as: "admin" },
    async (page) => {
      await call("POST", "/groups", { name: "limited" });
      await call("POST", "/jobs", {
        name: "each-second",
        group: "limited",
        handler: "echo",
        enabled: false,
        schedule: { kind: "fixed_rate", every: "1s" },
      });
      await page.goto("/executors");
      await page.getByRole("button", { name: "limited" }).click();
      const group = page.getByRole("region", { name: "limited" });
      await group.getByText("1 / 50,000").waitFor();
      await group.getByRole("button", { name: "Limits" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("textbox", { name: /^Jobs/ }).fill("1");
      await dialog.getByRole("button", { name: "Save" }).click();
      await group.getByText("1 / 1", { exact: true }).waitFor();
      assert.equal((await call("GET", "/groups/limited")).limits.max_jobs, 1);
      assert.equal((await call("GET", "/groups/limited")).limits.max_live_runs, 500_000);
    },
  );

  scene(
    stage,
    "a viewer has no buttons for changes, and cannot open pages for changes by their address",
    { as: "viewer", refusals: [403, 404] },
    async (page) => {
      const [job] = (await call("GET", "/jobs?q=nap")).items;
      const [run] = (await call("GET", "/runs?limit=1&group=demo")).items;
      const changing =
        /run now|new |edit|delete|kill|limits|run again|pause(?! the view)|drain|disable|enable|restore|save|import|more actions/i;
      for (const path of [
        "/",
        "/jobs",
        `/jobs/${job.id}`,
        "/runs",
        `/runs/${run.id}`,
        "/week",
        "/calendars",
        "/executors",
        "/events",
      ]) {
        await page.goto(path);
        await ready(page);
        const buttons = await page.locator("main button:visible, main a[role=button]:visible").allInnerTexts();
        const labels = await page
          .locator("main button:visible[aria-label]")
          .evaluateAll((all) => all.map((b) => b.getAttribute("aria-label")));
        const found = [...buttons, ...labels].filter(
          (b) =>
            changing.test(b) &&
            !["Pause", "Resume", "Export, import", "enabled", "disabled", "Enabled", "Disabled"].includes(b),
        );
        assert.deepEqual(found, [], `${path} offers a viewer ${found.join(", ")}`);
        assert.equal(
          await page.locator("main input[type=checkbox][role=switch]:not([disabled])").count(),
          0,
          `${path} has a switch that a viewer could turn`,
        );
      }
      for (const path of [
        "/jobs/new",
        `/jobs/${job.id}/edit`,
        "/calendars/+new",
        "/users",
        "/audit",
        "/alert-channels",
      ]) {
        await page.goto(path);
        await page.getByText("Your role does not allow this").waitFor();
        assert.equal(await page.locator("main form").count(), 0, `${path} shows a viewer a form`);
      }
      assert.equal(
        await page.evaluate(
          (id) =>
            fetch(`/api/v1/jobs/${id}/trigger`, {
              method: "POST",
              headers: { "Content-Type": "application/json" },
              body: "{}",
            }).then((r) => r.status),
          job.id,
        ),
        403,
      );
      // A job that the viewer may not see looks like a job that does not exist.
      await call("POST", "/groups", { name: "secret-group", description: "" });
      const hidden = await call("POST", "/jobs", {
        name: "hidden",
        group: "secret-group",
        handler: "x",
        schedule: { kind: "none" },
      });
      await page.goto(`/jobs/${hidden.id}`);
      await page.getByRole("alert").getByText("no such job", { exact: false }).waitFor();
      await page.goto("/jobs");
      await page.getByRole("link", { name: "nap" }).waitFor();
      assert.equal(await page.getByText("hidden").count(), 0);
    },
  );

  scene(stage, "the console can be used with the keyboard only", { as: "admin" }, async (page) => {
    await page.goto("/");
    await heading(page, "Overview");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    assert.notEqual(
      await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle),
      "none",
      "the focus is not visible",
    );
    await page.keyboard.press("Enter");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("g");
    await page.keyboard.press("j");
    await page.waitForURL("/jobs");
    await heading(page, "Jobs");
    await page.locator("[data-row]").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("nightly");
    await page.waitForURL(/\?q=nightly/);
    await page.keyboard.press("Escape");
    await page.waitForURL("/jobs");
    await page.locator("[data-row]").nth(3).waitFor();
    const focused = () =>
      page.evaluate(() => [...document.querySelectorAll("[data-row]")].indexOf(document.activeElement));
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    assert.equal(await focused(), 1);
    await page.keyboard.press("k");
    assert.equal(await focused(), 0);
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/jobs\/\d+$/);
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").waitFor();
    await page.keyboard.type("nightly-rep");
    await page.getByRole("option", { name: "nightly-report" }).waitFor();
    await page.keyboard.press("Enter");
    await heading(page, "nightly-report");
    await page.keyboard.press("g");
    await page.keyboard.press("h");
    await heading(page, "Calendars");
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await heading(page, "Runs");
  });

  scene(stage, "the filters are in the address, and stay after back and forward", { as: "admin" }, async (page) => {
    await page.goto("/runs");
    await page.getByRole("group", { name: "State" }).getByRole("button", { name: "succeeded" }).click();
    await page.waitForURL("/runs?state=succeeded");
    await page.locator("tbody .state-succeeded").first().click();
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
    await page.goBack();
    await page.waitForURL("/runs?state=succeeded");
    await page.locator('.chip[aria-pressed="true"]', { hasText: "succeeded" }).waitFor();
    await page.locator("tbody .state-succeeded").first().waitFor();
    assert.equal(await page.locator("tbody .state-failed").count(), 0);
    await page.goForward();
    await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
    await page.goto("/jobs?q=nap&enabled=true");
    await page.locator("[data-row]").first().waitFor();
    assert.equal(await page.getByLabel("Search jobs").inputValue(), "nap");
    await page.reload();
    await page.locator("[data-row]").first().waitFor();
    assert.equal(await page.locator("[data-row]").count(), 1);
  });

  scene(
    stage,
    "every page has no serious accessibility faults, in light and dark, in both languages and with a width of 360 pixels",
    { as: "admin" },
    async (page, context) => {
      const [job] = (await call("GET", "/jobs?q=disk-space")).items;
      const run = await until(
        "a run of disk-space that has ended",
        async () =>
          (await call("GET", `/runs?job_id=${job.id}&state=succeeded&limit=1`)).items[0] ??
          (await call("POST", `/jobs/${job.id}/trigger`, {}), undefined),
        60,
      );
      await call("POST", "/calendars", {
        name: "every-page",
        weekdays: ["sunday"],
        dates: [`${new Date().getFullYear()}-12-25`],
      });
      await page.goto("/");
      await heading(page, "Overview");
      const pages = await page.locator("nav a.nav-link").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
      assert.ok(pages.length >= 9, `${pages.length} pages in the menu`);
      const cdp = await context.newCDPSession(page);
      const axe = axeSource();
      const faults = [];
      const narrow = async (where) => {
        await page.setViewportSize({ width: 360, height: 740 });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) faults.push(`${where} is ${wide} pixels wider than 360`);
        await page.setViewportSize({ width: 1280, height: 900 });
      };
      for (const path of [
        ...pages,
        "/runs?state=succeeded",
        "/calendars/+new",
        "/calendars/every-page",
        "/jobs/new",
        `/jobs/${job.id}`,
        `/jobs/${job.id}/edit`,
        `/runs/${run.id}`,
      ]) {
        await page.goto(path);
        await ready(page);
        // The debugging protocol runs axe in the page although the content security policy forbids other scripts.
        await cdp.send("Runtime.evaluate", { expression: axe });
        faults.push(...(await axeFaults(page, `${path} light`)));
        await page.emulateMedia({ colorScheme: "dark" });
        await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
        faults.push(...(await axeFaults(page, `${path} dark`, ["color-contrast"])));
        const english = await page.locator("h1").innerText();
        await narrow(path);
        await page.getByRole("button", { name: "简体中文" }).click();
        await page.locator('html[lang="zh-Hans"]').waitFor();
        if (pages.includes(path)) {
          await page
            .getByRole("heading", { level: 1, name: await page.locator('nav a[aria-current="page"]').innerText() })
            .waitFor();
          assert.notEqual(
            await page.locator("h1").innerText(),
            english,
            `${path} has the same heading in both languages`,
          );
        }
        await narrow(`${path} in Chinese`);
        await page.evaluate(() => localStorage.setItem("belfry.language", "en"));
        await page.emulateMedia({ colorScheme: "light" });
      }
      await call("DELETE", "/calendars/every-page");
      await context.clearCookies();
      await page.goto("/login");
      await page.getByRole("button", { name: "Log in" }).waitFor();
      await cdp.send("Runtime.evaluate", { expression: axe });
      faults.push(...(await axeFaults(page, "/login light")));
      await page.emulateMedia({ colorScheme: "dark" });
      await page.locator('html[data-mantine-color-scheme="dark"]').waitFor();
      faults.push(...(await axeFaults(page, "/login dark", ["color-contrast"])));
      assert.ok(faults.length === 0, faults.join("\n"));
    },
  );

  scene(
    stage,
    "markup, links and control sequences in names, logs and other input are shown as text",
    { as: "admin", refusals: [404] },
    async (page) => {
      const brief = (where) => `<img src=x onerror="window.pwned='${where}'">`;
      const evil = (where) => `${brief(where)}<a href="javascript:window.pwned='${where}'">${where}</a>`;
      const { token } = await call("POST", "/groups", { name: "evil", description: evil("group") });
      // A heartbeat is valid for ten seconds, and a busy machine takes longer for the pages before the one of executors.
      const register = () =>
        heartbeat(stage.nats, token, {
          group: "evil",
          instance: "evil-1",
          handlers: [evil("handler")],
          script_languages: [],
          capacity: 4,
          labels: { zone: evil("label") },
          version: evil("version"),
          host: evil("host"),
        });
      await register();
      await call("POST", "/groups/evil/pause", { reason: evil("pause") });
      const job = await call("POST", "/jobs", {
        name: evil("job"),
        group: "demo",
        description: evil("description"),
        author: brief("author"),
        tags: [brief("tag")],
        param: evil("param"),
        schedule: { kind: "none" },
        script: {
          language: "sh",
          remark: evil("remark"),
          code: `# ${evil("code")}
echo "$BELFRY_PARAM"
printf '%s\\n' '${evil("log").replaceAll("'", `'"'"'`)}'
printf '\\033]8;;javascript:alert(1)\\033\\\\click me\\033]8;;\\033\\\\ \\033[2J\\033[31;5mred\\033[0m \\033]0;title\\007 a\\rb\\n'
echo '::output ${evil("output").replaceAll("'", `'"'"'`)}'
exit 3
`,
        },
      });
      await call("POST", "/event-triggers", { name: "evil.happened", job_id: job.id, param: "{{.event.data.text}}" });
      await call("POST", "/events/evil.happened", { text: evil("event") });
      const run = await until(
        "the run of the event",
        async () => (await call("GET", `/runs?job_id=${job.id}&state=failed&limit=1`)).items[0],
      );
      const child = await call("POST", "/jobs", {
        name: evil("child"),
        group: "evil",
        handler: evil("handler"),
        schedule: { kind: "none" },
        children: [{ job_id: job.id }],
      });

      const untouched = async (path) => {
        assert.equal(await page.evaluate(() => window.pwned), undefined, `${path} ran a script`);
        assert.equal(
          await page.locator('img[src="x"], [onerror], a[href^="javascript:" i]').count(),
          0,
          `${path} has elements that were input as text`,
        );
      };
      for (const [path, shown] of [
        ["/", []],
        ["/jobs", ["job", "child", "tag"]],
        [`/jobs/${job.id}`, ["job", "description", "tag", "param", "code", "author"]],
        [`/jobs/${child.id}`, ["child", "handler"]],
        [`/jobs/${job.id}/edit`, ["code"]],
        ["/runs", ["job"]],
        [`/runs/${run.id}`, ["job", "event", "log", "output"]],
        ["/executors?open=evil", ["group", "handler", "host", "version", "pause"]],
        ["/events", ["job"]],
        ["/audit", []],
      ]) {
        if (path.startsWith("/executors")) await register();
        await page.goto(path);
        await ready(page);
        for (const where of shown) {
          await page
            .locator("main")
            .getByText(brief(where))
            .first()
            .waitFor()
            .catch(() => assert.fail(`${path} does not show the text of the ${where}`));
        }
        await untouched(path);
      }
      await page.goto(`/runs/${run.id}`);
      await page.getByRole("log").getByText("click me").waitFor();
      await page.getByRole("log").locator(".fg-red").getByText("red").waitFor();
      assert.ok(!(await page.title()).startsWith("title"));
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox").fill("<img");
      await page.getByRole("option").first().waitFor();
      await untouched("the palette");
    },
  );
}

/** script creates a job with a script and without a schedule. */
const script = (name, code) =>
  call("POST", "/jobs", { name, group: "demo", schedule: { kind: "none" }, script: { language: "sh", code } });
