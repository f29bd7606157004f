// Scenes of jobs: the form, the page, the script. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { heading, scene } from "./scene.mjs";

export function jobs(stage) {
  const call = (...of) => stage.call(...of);
  /** script creates a job with a script and without a schedule. */
  const script = (name, code) =>
    call("POST", "/jobs", { name, group: "demo", schedule: { kind: "none" }, script: { language: "sh", code } });

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

  scene(
    stage,
    "the next run uses the new version of an edited script, and an old version can be restored",
    { as: "admin" },
    async (page) => {
      const job = await script("edited", "echo the old one\n");
      await page.goto(`/jobs/${job.id}`);
      await page.getByRole("tab", { name: "Script" }).click();
      await page.waitForURL(/\?tab=script$/);
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
      await page.getByRole("tab", { name: "Runs" }).focus();
      await page.keyboard.press("ArrowLeft"); // the tabs are one stop of the Tab key; arrows move between them
      await page.waitForURL(/\?tab=history$/);
      await page.getByRole("button", { name: "Ask" }).click();
      await page.locator(".answer").waitFor();
      await page.getByRole("button", { name: "Check every fire time of the last 24 hours" }).click();
      await page.getByText(/^In the last 24 hours: |^No fire times in/).waitFor();
      await page.getByRole("tab", { name: "Definition" }).click();
      await graph.getByRole("link", { name: "send-report" }).focus();
      await page.keyboard.press("Enter");
      await heading(page, "send-report");
      await page.getByRole("tab", { name: "Definition" }).click();
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
    "the overview lists missed fire times with their reason, and links to the explanation",
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
      const missed = page
        .getByRole("region", { name: "Needs attention" })
        .getByRole("listitem")
        .filter({ hasText: "Missed fire times" });
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
    "a job is backfilled after a preview of its fire times, and its definition is copied; its runs show their errors at every width",
    { as: "admin" },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "hourly-and-broken",
        group: "demo",
        block: "parallel",
        schedule: { kind: "cron", expr: "0 * * * *", time_zone: "Asia/Tokyo" },
        script: { language: "sh", code: "echo no disk >&2\nexit 3\n" },
      });
      await page.goto(`/jobs/${job.id}`);
      const more = page.getByRole("button", { name: "More actions for hourly-and-broken" });
      await more.click();
      await page.getByRole("menuitem", { name: "Copy as…" }).click();
      const copy = page.getByRole("dialog", { name: "hourly-and-broken as text" });
      await copy.getByText("name: hourly-and-broken").waitFor();
      await copy.getByText("CLI", { exact: true }).click();
      await copy.getByText(`BELFRY_SERVER=${stage.base} belfry job apply -f -`).waitFor();
      await copy.getByText("curl", { exact: true }).click();
      await copy.getByText(`${stage.base}/api/v1/jobs/${job.id}`).waitFor();
      await page.keyboard.press("Escape");
      await copy.waitFor({ state: "detached" });

      await more.click();
      await page.getByRole("menuitem", { name: "Backfill…" }).click();
      const dialog = page.getByRole("dialog", { name: "Backfill hourly-and-broken" });
      await dialog.getByText("24 fire times").waitFor();
      await dialog.getByLabel("At most").fill("3");
      await dialog.getByText("3 fire times").waitFor();
      await dialog.getByText(/^There are more\./).waitFor();
      assert.equal(await dialog.locator("ol.times li").count(), 3);
      await dialog.getByRole("button", { name: "Run 3 times" }).click();
      await page.waitForURL(`/runs?job_id=${job.id}&cause=backfill`);
      await page.locator("tbody .state-failed").nth(2).waitFor();
      assert.equal(await page.locator("tbody tr").count(), 3);

      await page.goto(`/jobs/${job.id}`);
      const error = page
        .locator("tbody tr")
        .first()
        .getByText(/no disk/);
      for (const width of [360, 768, 1024, 1440]) {
        await page.setViewportSize({ width, height: 800 });
        await until(`the error at ${width} px`, async () => {
          const visible = await Promise.all((await error.all()).map((e) => e.isVisible()));
          return visible.filter(Boolean).length === 1;
        });
      }
      // The next fire times are in the viewer's zone and in the job's.
      await page
        .getByRole("region", { name: "Upcoming" })
        .getByText(/GMT\+9/)
        .first()
        .waitFor();
    },
  );
}
