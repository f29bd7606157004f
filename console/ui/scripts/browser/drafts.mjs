// Scenes of forms with unsaved changes. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { heading, scene } from "./scene.mjs";

export function drafts(stage) {
  const call = (...of) => stage.call(...of);
  const byHand = (name, more) =>
    call("POST", "/jobs", { name, group: "demo", handler: "echo", schedule: { kind: "none" }, ...more });
  const save = (page) => page.getByRole("button", { name: "Save", exact: true });

  scene(
    stage,
    "after a version conflict, the changes stay in the form, the difference is shown, and the user chooses",
    { as: "admin", refusals: [409, 422] },
    async (page) => {
      const job = await byHand("edited-by-two", { description: "as it was", param: "one\ntwo\nthree" });
      await page.goto(`/jobs/${job.id}/edit`);
      await page.getByLabel("Description").fill("as I want it");
      await page.getByLabel("Param").fill("one\n2\nthree");
      await call("PATCH", `/jobs/${job.id}`, { retries: 3 });
      await page.evaluate(() => scrollTo(0, 0));
      await save(page).click();
      const fault = page.getByRole("alert").filter({ hasText: "Another user saved version 2 of this job meanwhile." });
      await fault.waitFor();
      assert.ok(
        await fault.evaluate((el) => {
          const { top, bottom } = el.getBoundingClientRect();
          return top >= 0 && bottom <= innerHeight;
        }),
        "the failure is outside of the window",
      );
      assert.equal(await page.getByLabel("Description").inputValue(), "as I want it");
      await fault.getByRole("button", { name: "Show the difference" }).click();
      const dialog = page.getByRole("dialog", { name: "The saved version and yours" });
      const field = (name) => dialog.locator(".changed", { hasText: name });
      await field("Retries").locator("del").getByText("3").waitFor();
      await field("Description").locator("ins").getByText("as I want it").waitFor();
      await field("Param").locator(".removed", { hasText: "two" }).waitFor();
      assert.deepEqual(
        [
          await field("Param").locator(".removed").count(),
          await field("Param").locator(".added").count(),
          await field("Param").locator(".same").count(),
        ],
        [1, 1, 2],
      );
      await dialog.getByRole("button", { name: "Save mine over it" }).click();
      await page.waitForURL(`/jobs/${job.id}`);
      const mine = await call("GET", `/jobs/${job.id}`);
      assert.deepEqual([mine.description, mine.retries], ["as I want it", 0]);
      // The second time, the user loads the saved version.
      await page.goto(`/jobs/${job.id}/edit`);
      await page.getByLabel("Description").fill("not this");
      await call("PATCH", `/jobs/${job.id}`, { description: "as she wants it" });
      await save(page).click();
      await page.getByRole("button", { name: "Load the saved version" }).click();
      await page.getByRole("textbox", { name: "Description" }).and(page.locator('[value="as she wants it"]')).waitFor();
      await save(page).click();
      await page.waitForURL(`/jobs/${job.id}`);
    },
  );

  scene(
    stage,
    "a changed form asks before it is left, by a link, a key or the button Back",
    { as: "admin" },
    async (page) => {
      const job = await byHand("left-behind");
      await page.goto("/jobs");
      await heading(page, "Jobs");
      await page.goto(`/jobs/${job.id}`);
      await page.getByRole("link", { name: "Edit" }).click();
      await heading(page, "Edit job");
      const question = page.getByRole("dialog", { name: "Leave without saving?" });
      const stay = async () => {
        await question.getByRole("button", { name: "Stay" }).click();
        await question.waitFor({ state: "detached" });
        assert.equal(new URL(page.url()).pathname, `/jobs/${job.id}/edit`);
        assert.equal(await page.getByLabel("Description").inputValue(), "typed, not saved");
      };
      await page.getByLabel("Description").fill("typed, not saved");
      await page.getByRole("navigation").getByRole("link", { name: "Runs", exact: true }).click();
      await stay();
      await page.goBack();
      await stay();
      await page.getByRole("button", { name: "Cancel" }).click();
      await stay();
      await page.getByRole("navigation").getByRole("link", { name: "Runs", exact: true }).click();
      await question.getByRole("button", { name: "Leave" }).click();
      await heading(page, "Runs");
      // The dropped changes do not come back, and an unchanged form does not ask.
      await page.goto(`/jobs/${job.id}/edit`);
      await heading(page, "Edit job");
      assert.equal(await page.getByLabel("Description").inputValue(), "");
      await page.getByRole("navigation").getByRole("link", { name: "Runs", exact: true }).click();
      await heading(page, "Runs");
    },
  );

  scene(
    stage,
    "if the session expires while a form is filled in, logging in brings the draft back",
    { as: "admin" },
    async (page, context) => {
      const job = await byHand("outlives-a-session");
      await page.goto(`/jobs/${job.id}/edit`);
      await page.getByLabel("Description").fill("typed before the session ended");
      await context.clearCookies();
      await save(page).click();
      await page.waitForURL(/\/login\?to=/);
      await page.getByLabel("User").fill("admin");
      await page.getByLabel("Password", { exact: true }).fill(stage.password);
      await page.keyboard.press("Enter");
      await page.waitForURL(`/jobs/${job.id}/edit`);
      await page.getByText(/^Your changes of .* are back/).waitFor();
      assert.equal(await page.getByLabel("Description").inputValue(), "typed before the session ended");
      await save(page).click();
      await page.waitForURL(`/jobs/${job.id}`);
      assert.equal((await call("GET", `/jobs/${job.id}`)).description, "typed before the session ended");
      await page.goto(`/jobs/${job.id}/edit`);
      await heading(page, "Edit job");
      assert.equal(await page.getByText(/^Your changes of/).count(), 0, "a saved draft comes back");
    },
  );
}
