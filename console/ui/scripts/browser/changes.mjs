// Scenes of forms, imports, bulk changes and log-ins. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { publish, until } from "./belfry.mjs";
import { heading, scene } from "./scene.mjs";

export function changes(stage) {
  const call = (...of) => stage.call(...of);
  const byHand = (name, more) =>
    call("POST", "/jobs", { name, group: "demo", handler: "echo", schedule: { kind: "none" }, ...more });

  scene(
    stage,
    "an import shows the changes before it makes them, and an export has all jobs",
    { as: "admin", refusals: [422] },
    async (page) => {
      const there = await byHand("imported-before", { param: "the old param" });
      await page.goto("/jobs");
      const menu = page.getByRole("button", { name: "Export, import" });
      await menu.click();
      await page.getByRole("menuitem", { name: "Import…" }).click();
      const dialog = page.getByRole("dialog", { name: "Import" });
      const check = dialog.getByRole("button", { name: "Show what would change" });
      await dialog
        .getByLabel("YAML")
        .fill("group: demo\nname: imported\nhandler: echo\nschedule: {kind: cron, expr: 61 2 * * *}\n");
      await check.click();
      await dialog.getByRole("alert").getByText("schedule.expr").waitFor();
      await dialog
        .getByLabel("YAML")
        .fill(
          "group: demo\nname: imported\nhandler: echo\nschedule: {kind: none}\n---\ngroup: demo\nname: imported-before\nhandler: echo\nparam: the new param\nschedule: {kind: none}\n",
        );
      await check.click();
      await dialog.getByText("Would create 1 and change 1; 0 unchanged.").waitFor();
      const change = dialog.locator(".difference", { hasText: "demo/imported-before" });
      await change.locator("del").getByText("the old param").waitFor();
      await change.locator("ins").getByText("the new param").waitFor();
      assert.equal((await call("GET", `/jobs/${there.id}`)).param, "the old param", "showing the changes has made one");
      await dialog.getByRole("button", { name: "Import 2 changes" }).click();
      await dialog.getByText("Created 1, changed 1; 0 unchanged.").waitFor();
      await dialog.getByRole("button", { name: "Close" }).last().click();
      await page.getByRole("link", { name: "imported", exact: true }).waitFor();
      assert.equal((await call("GET", `/jobs/${there.id}`)).param, "the new param");
      await menu.click();
      const [file] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("menuitem", { name: "Export all as YAML" }).click(),
      ]);
      assert.match(file.suggestedFilename(), /\.yaml$/);
      assert.match(readFileSync(await file.path(), "utf8"), /name: imported-before\n(.*\n)+? +param: the new param/);
    },
  );

  scene(
    stage,
    "a job is edited as YAML, faults are shown, and the form shows the same job",
    { as: "admin", refusals: [422] },
    async (page) => {
      const job = await byHand("as-yaml", { param: "as it was" });
      await page.goto(`/jobs/${job.id}/edit`);
      await page.getByRole("radiogroup", { name: "Edit as" }).getByText("YAML").click();
      const editor = page.getByRole("textbox", { name: "YAML" });
      await editor.getByText("param: as it was").waitFor();
      const write = async (text) => {
        await editor.click();
        await page.keyboard.press("Control+a");
        await editor.evaluate((el, text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          el.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
        }, text);
      };
      const save = page.getByRole("button", { name: "Save", exact: true });
      const status = page.locator(".yaml-tab").getByRole("status");
      await write("group: demo\nname: [as-yaml\n");
      await status.waitFor();
      assert.ok(await save.isDisabled(), "malformed YAML can be saved");
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: fixed_rate, every: 3}\n");
      await status.getByText("schedule.every: must be a string; put it in quotes").waitFor();
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: cron, expr: 0 25 * * *}\nretries: 2\n");
      await status.waitFor({ state: "detached" });
      await save.click();
      await page.getByRole("alert").getByText("schedule.expr").waitFor();
      await write("group: demo\nname: as-yaml\nhandler: echo\nschedule: {kind: fixed_rate, every: 3h}\nretries: 2\n");
      await page.getByRole("radiogroup", { name: "Edit as" }).getByText("Form").click();
      assert.equal(await page.getByLabel("Every", { exact: true }).inputValue(), "3h");
      await save.click();
      await page.waitForURL(`/jobs/${job.id}`);
      await heading(page, "as-yaml");
      const saved = await call("GET", `/jobs/${job.id}`);
      assert.deepEqual([saved.schedule.every, saved.retries, saved.param], ["3h", 2, ""]);
    },
  );

  scene(
    stage,
    "several jobs are changed at once, and a job that cannot be changed is named",
    { as: "admin", refusals: [404] },
    async (page) => {
      const jobs = await Promise.all(
        [1, 2, 3].map((n) =>
          byHand(`several-${n}`, { tags: ["several"], schedule: { kind: "fixed_rate", every: "1h" } }),
        ),
      );
      await page.goto("/jobs?tag=several");
      await page.locator("[data-row]").nth(2).waitFor();
      await page.getByLabel("Select all in the list").check();
      await page.getByLabel("Select several-3").uncheck();
      await page.getByText("2 selected").waitFor();
      await page.locator(".bulk-bar").getByRole("button", { name: "Disable" }).click();
      const dialog = page.getByRole("dialog", { name: "Disable 2 jobs?" });
      await dialog.getByRole("listitem").nth(1).waitFor();
      await dialog.getByRole("button", { name: "Disable 2" }).click();
      await dialog.getByText("2 of 2", { exact: true }).waitFor();
      assert.equal(await dialog.getByRole("progressbar").getAttribute("aria-valuenow"), "100");
      await dialog.getByRole("button", { name: "Close" }).last().click();
      assert.deepEqual(await Promise.all(jobs.map(async (j) => (await call("GET", `/jobs/${j.id}`)).enabled)), [
        false,
        false,
        true,
      ]);
      for (const [n, on] of [
        [1, false],
        [2, false],
        [3, true],
      ])
        assert.equal(await page.getByRole("switch", { name: `Enable several-${n}` }).isChecked(), on);
      // A job that was deleted meanwhile is named with the error. The others are enabled.
      await page.getByLabel("Select all in the list").check();
      await page.locator(".bulk-bar").getByRole("button", { name: "Enable" }).click();
      const again = page.getByRole("dialog", { name: "Enable 3 jobs?" });
      await call("DELETE", `/jobs/${jobs[1].id}`);
      await again.getByRole("button", { name: "Enable 3" }).click();
      await again.getByText("3 of 3 · 1 failed").waitFor();
      await again.getByRole("listitem").getByText("several-2").waitFor();
      assert.equal((await call("GET", `/jobs/${jobs[0].id}`)).enabled, true);
      await again.getByRole("button", { name: "Close" }).last().click();
      await page.getByLabel("Select all in the list").check();
      await page.locator(".bulk-bar").getByRole("button", { name: "Delete" }).click();
      const last = page.getByRole("dialog", { name: "Delete 2 jobs?" });
      await last.getByRole("button", { name: "Delete 2" }).click();
      await page.getByText("No job matches the filters.").waitFor();
      await last.getByText("2 of 2", { exact: true }).waitFor(); // although the list no longer has the jobs
    },
  );

  scene(
    stage,
    "a faulty filter of a new trigger is marked, and the correct trigger fires its job",
    { as: "admin", refusals: [422] },
    async (page) => {
      const job = await byHand("ships");
      await page.goto("/events");
      await page.getByRole("button", { name: "New trigger" }).first().click();
      const dialog = page.getByRole("dialog", { name: "New trigger" });
      await dialog.getByLabel("Event").fill("parcels.*");
      await dialog.getByRole("textbox", { name: "Job to run" }).fill("ships");
      await page.getByRole("option", { name: "demo/ships" }).click();
      const filter = dialog.getByLabel("Filter");
      await filter.fill("event.data.kilos >");
      await dialog.getByLabel("Param").fill("parcel {{.event.data.id}}");
      await dialog.getByRole("button", { name: "Save" }).click();
      await dialog.locator(".mantine-Textarea-error").waitFor();
      assert.equal(await filter.getAttribute("aria-invalid"), "true");
      await filter.fill("event.data.kilos > 10.0");
      await dialog.getByRole("button", { name: "Save" }).click();
      await dialog.waitFor({ state: "detached" });
      await page.getByRole("button", { name: "parcels.*", exact: true }).waitFor();
      await page.getByRole("button", { name: "Send an event" }).click();
      const send = page.getByRole("dialog", { name: "Send an event" });
      await send.getByLabel("Event").fill("parcels.left");
      await send.getByLabel("Data (JSON)").fill('{"id": 7, "kilos": 12}');
      await send.getByRole("button", { name: "Send" }).click();
      await send.getByText("Accepted. Runs fired: 1.").waitFor();
      await send.getByLabel("Data (JSON)").fill('{"id": 8, "kilos": 2}');
      await send.getByRole("button", { name: "Send" }).click();
      await send.getByText("filtered out").waitFor();
      await send.getByRole("button", { name: "Close" }).last().click();
      assert.equal((await call("GET", `/runs?job_id=${job.id}&limit=1`)).items[0].param, "parcel 7");
      await page.locator("tbody tr", { hasText: "parcels.left" }).nth(1).waitFor();
    },
  );

  scene(
    stage,
    "an alert channel is created and tested, and the page shows the result of the test",
    { as: "admin", refusals: [422] },
    async (page) => {
      const received = [];
      let status = 204;
      const receiver = createServer((request, answer) => {
        let body = "";
        request
          .on("data", (d) => (body += d))
          .on("end", () => {
            received.push({ body, headers: request.headers });
            answer.writeHead(status).end();
          });
      });
      await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
      try {
        await page.goto("/alert-channels");
        await page.getByRole("button", { name: "New channel" }).first().click();
        const dialog = page.getByRole("dialog", { name: "New channel" });
        await dialog.getByLabel("Name").fill("on-call");
        await dialog.getByLabel("URL").fill(`http://127.0.0.1:${receiver.address().port}/hook`);
        await dialog.getByLabel("Secret").first().fill("short");
        await dialog.getByRole("button", { name: "Save and send a test" }).click();
        await dialog.locator(".mantine-PasswordInput-error").waitFor();
        await dialog.getByLabel("Secret").first().fill("sixteen bytes, or more");
        await dialog.getByRole("button", { name: "Save and send a test" }).click();
        await page
          .getByRole("alert")
          .getByText(/^Delivered: /)
          .waitFor();
        const [first] = received;
        const mac = createHmac("sha256", "sixteen bytes, or more")
          .update(`${first.headers["belfry-timestamp"]}.${first.body}`)
          .digest("hex");
        assert.equal(first.headers["belfry-signature"], `v1=${mac}`);
        assert.ok(JSON.parse(first.body).text, first.body);
        // The error of the receiver is shown, and stored secrets are not.
        status = 500;
        await page.locator("tbody tr", { hasText: "on-call" }).getByRole("button", { name: "Send a test" }).click();
        await page
          .getByRole("alert")
          .getByText(/^Not delivered: .*500/)
          .waitFor();
        await page.getByRole("button", { name: "on-call", exact: true }).click();
        const edit = page.getByRole("dialog", { name: "on-call" });
        assert.deepEqual(
          [await edit.getByLabel("URL").inputValue(), await edit.getByLabel("Secret").first().inputValue()],
          ["", ""],
        );
      } finally {
        receiver.closeAllConnections();
        receiver.close();
      }
    },
  );

  scene(stage, "a user whose password was set by an admin must change it first", { refusals: [422] }, async (page) => {
    await call("POST", "/users", {
      username: "newcomer",
      password: "as-the-admin-chose",
      role: "viewer",
      groups: ["demo"],
      must_change_password: true,
    });
    await page.goto("/login?to=/runs");
    await page.getByLabel("User").fill("newcomer");
    await page.getByLabel("Password", { exact: true }).fill("as-the-admin-chose");
    await page.keyboard.press("Enter");
    await heading(page, "Change password");
    await page.goto("/jobs"); // every other page shows the form too
    await heading(page, "Change password");
    assert.equal(await page.locator("nav").count(), 0);
    const fill = async (...values) => {
      for (const [i, label] of ["Current password", "New password", "New password again"].entries())
        await page.getByLabel(label, { exact: true }).fill(values[i]);
      await page.getByRole("button", { name: "Change password" }).click();
    };
    await fill("as-the-admin-chose", "chosen-by-myself", "chosen-by-mistake");
    await page.getByText("The passwords differ.").waitFor();
    await fill("not what it was", "chosen-by-myself", "chosen-by-myself");
    await page.locator(".mantine-PasswordInput-error").waitFor();
    await fill("as-the-admin-chose", "chosen-by-myself", "chosen-by-myself");
    await heading(page, "Jobs");
    await page.reload();
    await page.getByRole("link", { name: "nap" }).waitFor();
  });

  scene(stage, "a log-in through the identity provider opens the requested page", {}, async (page) => {
    const button = page.getByRole("link", { name: "Log in with The Company" });
    await stage.provider.user(undefined);
    await page.goto("/login");
    await button.click();
    await page.getByText("The identity provider refused the log-in, or you cancelled it.").waitFor();
    await stage.provider.user({ sub: "7c1", preferred_username: "ann.lee", groups: ["others"] });
    await button.click();
    await page.getByText("You have no role in Belfry. Ask an admin.").waitFor();
    await stage.provider.user({ sub: "7c1", preferred_username: "ann.lee", groups: ["ops"] });
    await page.goto("/runs?state=failed");
    await button.click();
    await page.waitForURL("/runs?state=failed");
    await heading(page, "Runs");
    await page.getByRole("link", { name: "ann.lee" }).click();
    await heading(page, "Your account");
    await page.getByText("single sign-on").waitFor();
    assert.equal(
      await page.getByLabel("Current password").count(),
      0,
      "a user of the provider has no password to change",
    );
  });

  scene(stage, "a dead letter is shown, replayed and deleted", { as: "admin" }, async (page) => {
    const { token } = await call("POST", "/tokens", { name: "sender", role: "admin", scope: "events" });
    await page.goto("/dead-letters");
    await page.getByText("No dead letters").waitFor();
    await publish(stage.nats, token, "belfry.v1.event.parcels.lost", "<b>no JSON</b>");
    const letter = () => call("GET", "/dead-letters").then((l) => l.items[0]?.seq);
    const first = await until("the dead letter", letter);
    await page.reload();
    const row = page.locator("tbody tr", { hasText: "belfry.v1.event.parcels.lost" });
    await row.getByText("is not JSON").waitFor();
    await row.locator("[data-row]").click();
    const dialog = page.getByRole("dialog", { name: `Dead letters ${first}` });
    await dialog.getByText("<b>no JSON</b>").waitFor();
    // The replayed message still cannot be processed, so it becomes a dead letter with another number.
    await dialog.getByRole("button", { name: "Replay" }).click();
    await dialog.waitFor({ state: "detached" });
    const second = await until("the new dead letter", async () => {
      const seq = await letter();
      return seq !== first && seq;
    });
    await page.goto("/dead-letters?kind=event");
    await row.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog", { name: "Delete this message?" }).getByRole("button", { name: "Delete" }).click();
    await page.getByText("No dead letters").waitFor();
    assert.equal(await letter(), undefined, `letter ${second} is still there`);
  });
}
