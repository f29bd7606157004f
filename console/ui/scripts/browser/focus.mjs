// Scenes of the focus. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { focusedIn, ready, scene } from "./scene.mjs";

export function focus(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "the focus stays where it was: while lists are read again, and after menus and dialogs close",
    { as: "admin" },
    async (page) => {
      const { id } = await call("POST", "/jobs", {
        name: "keeps-the-focus",
        group: "demo",
        block: "parallel",
        handler: "echo",
        schedule: { kind: "none" },
      });
      const focused = () =>
        page.evaluate(() => {
          const el = document.activeElement;
          return el.getAttribute("aria-label") ?? el.getAttribute("href") ?? el.textContent ?? el.tagName;
        });
      const stays = (what, when) => until(`the focus on ${what} ${when}`, async () => (await focused()) === what, 20);
      const choose = async (item) => {
        await focusedIn(page.getByRole("menu"));
        await page.getByRole("menuitem", { name: item }).press("Enter");
      };
      const reread = async (path) => {
        for (let n = 0; n < 2; n++) await page.waitForResponse((r) => new URL(r.url()).pathname === path);
      };
      await page.goto("/jobs?q=keeps-the-focus");
      await ready(page);
      const more = page.getByRole("button", { name: "More actions for keeps-the-focus" });
      const menu = await more.getAttribute("aria-label");
      // A menu that is closed.
      await more.focus();
      await page.keyboard.press("Enter");
      await page.getByRole("menuitem", { name: "Edit" }).waitFor();
      await focusedIn(page.getByRole("menu"));
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Escape");
      await page.getByRole("menu").waitFor({ state: "detached" });
      await stays(menu, "after the menu");
      // A dialog that a menu opened.
      await page.keyboard.press("Enter");
      await choose("Delete");
      await focusedIn(page.getByRole("dialog"));
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).press("Enter");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await stays(menu, "after the dialog of the menu");
      // A dialog that a button opened.
      const run = page.getByRole("button", { name: /^Run keeps-the-focus/ });
      const play = await run.getAttribute("aria-label");
      await run.press("Enter");
      await focusedIn(page.getByRole("dialog"));
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await stays(play, "after the dialog of the button");
      // The list is read again, and the job has changed.
      const link = page.getByRole("link", { name: "keeps-the-focus" });
      await link.focus();
      await call("PATCH", `/jobs/${id}`, { tags: ["new"] });
      await page.getByRole("button", { name: "#new" }).last().waitFor();
      await reread("/api/v1/jobs");
      assert.equal(await focused(), `/jobs/${id}`);
      // Runs appear on the job's page.
      const trigger = () => call("POST", `/jobs/${id}/trigger`, {});
      const {
        run_ids: [first],
      } = await trigger();
      await until("the end of the run", async () => (await call("GET", `/runs/${first}`)).state === "succeeded");
      await page.goto(`/jobs/${id}`);
      await page.locator(`[data-row][href="/runs/${first}"]`).focus();
      await trigger();
      await page.getByRole("button", { name: "1 new" }).waitFor();
      assert.equal(await focused(), `/runs/${first}`);
      // The job is deleted by the dialog: the focus is in the content, not lost.
      await page.goto("/jobs?q=keeps-the-focus");
      await ready(page);
      await more.focus();
      await page.keyboard.press("Enter");
      await choose("Delete");
      await focusedIn(page.getByRole("dialog"));
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).press("Enter");
      await page.getByText("No job matches").or(page.locator(".empty")).first().waitFor();
      await until("the focus in the content", () => page.evaluate(() => document.activeElement.id === "main"), 20);
    },
  );
}
