// Scenes of log-in and of what users may do. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { counted, heading, ready, scene } from "./scene.mjs";

export function access(stage) {
  const call = (...of) => stage.call(...of);

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
      const before = newcomer.count.n;
      await newcomer.press("n");
      await newcomer.fill(page.getByRole("textbox", { name: "Name" }), "first-job");
      await newcomer.fill(page.getByRole("textbox", { name: /^Handler/ }), "echo");
      await newcomer.click(page.getByRole("button", { name: "Save and run now" }));
      await page.waitForURL(/\/runs\/[0-9a-f-]{36}$/);
      await page.locator("h1 .state-succeeded").waitFor();
      assert.ok(newcomer.count.n < 10, `${newcomer.count.n} interactions`);
      assert.ok(newcomer.count.n - before <= 6, `${newcomer.count.n - before} interactions from the overview`);
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
}
