// Scenes of calendars, which are named sets of days off. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { heading, ready, scene } from "./scene.mjs";

export function calendars(stage) {
  const call = (...of) => stage.call(...of);
  const year = new Date().getFullYear() + 1;

  scene(
    stage,
    "a calendar is created from weekdays, selected days, pasted dates and dates in a file",
    { as: "admin", refusals: [422] },
    async (page) => {
      await page.goto("/calendars");
      await page.getByText("No calendars yet").waitFor();
      await page.getByRole("link", { name: "New calendar" }).first().click();
      await heading(page, "New calendar");
      await page.getByLabel("Name").fill("No Name");
      await page.getByRole("button", { name: "Save" }).click();
      await page.locator(".mantine-TextInput-error").waitFor();
      await page.getByLabel("Name").fill("holidays");
      const weekly = page.getByRole("group", { name: "Weekdays off" });
      for (const day of ["Saturday", "Sunday"]) await weekly.getByRole("button", { name: day }).click();
      await page.getByRole("button", { name: "Next year" }).click();
      const day = (date) => page.locator(`[data-day="${year}-${date}"]`);
      await day("01-01").click();
      // The keys move to the next day, and to the same day of the next month.
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("Space");
      await page.keyboard.press("PageDown");
      await page.keyboard.press("Enter");
      assert.match(await day("02-02").getAttribute("aria-label"), new RegExp(`2 February ${year}$`));
      await day("05-01").click();
      await day("05-03").click({ modifiers: ["Shift"] });
      await day("01-02").click(); // a second click removes the day
      const many = page.getByLabel("Many dates at once");
      await many.fill(`${year}-12-25 Christmas Day\nChristmas\n${year}-10-01..${year}-10-03\n`);
      await page.getByRole("button", { name: "Add dates" }).click();
      await page.getByText("Line 2 has no valid date: Christmas").waitFor();
      await page.locator("input[type=file]").setInputFiles({
        name: "holidays.ics",
        mimeType: "text/calendar",
        buffer: Buffer.from(
          `BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:${year}1225\r\nDTEND;VALUE=DATE:${year}1227\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n`,
        ),
      });
      await page.getByText("New dates: 1. Already there: 1. Save to keep them.").waitFor();
      assert.equal(await day("12-26").getAttribute("aria-pressed"), "true");
      await page.getByRole("button", { name: "Save" }).click();
      await page.waitForURL("/calendars");
      await page.getByRole("row", { name: /holidays.*Sat, Sun.*10/ }).waitFor();
      const made = await call("GET", "/calendars/holidays");
      assert.deepEqual(
        [made.weekdays, made.dates],
        [
          ["saturday", "sunday"],
          ["01-01", "02-02", "05-01", "05-02", "05-03", "10-01", "10-02", "10-03", "12-25", "12-26"].map(
            (d) => `${year}-${d}`,
          ),
        ],
      );
    },
  );

  scene(
    stage,
    "a job that names a calendar does not fire on its days off, and the form, the job's page and the calendar show this",
    { as: "admin", refusals: [409] },
    async (page) => {
      await call("POST", "/calendars", { name: "weekends", weekdays: ["saturday", "sunday"], dates: [] });
      await page.goto("/jobs/new");
      await page.getByRole("textbox", { name: "Name" }).fill("workdays-only");
      await page.getByRole("textbox", { name: /^Handler/ }).fill("echo");
      await page.keyboard.press("Escape");
      await page.getByLabel("Cron expression").fill("0 12 * * *");
      await page.getByRole("textbox", { name: "Days off" }).click();
      await page.getByRole("option", { name: "weekends" }).click();
      await page
        .locator(".preview")
        .getByText(/weekends/)
        .waitFor();
      const times = page.locator(".preview tbody tr td:first-child");
      await times.nth(9).waitFor();
      const days = (await times.allInnerTexts()).map((text) => new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDay());
      assert.ok(
        days.length === 10 && days.every((d) => d !== 0 && d !== 6),
        `the job would fire on the weekdays ${days}`,
      );
      await page.getByRole("radiogroup", { name: "Edit as" }).getByText("YAML").click();
      await page.getByRole("textbox", { name: "YAML" }).getByText("calendar: weekends").waitFor();
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.waitForURL(/\/jobs\/\d+$/);
      await page.getByRole("tab", { name: "Definition" }).click();
      await page.getByRole("region", { name: "Definition" }).getByRole("link", { name: "weekends" }).click();
      await page.getByRole("link", { name: "Jobs that use it: 1" }).click();
      await page.waitForURL("/jobs?calendar=weekends");
      await page.locator("[data-row]").first().waitFor();
      assert.deepEqual(await page.locator("[data-row]").allInnerTexts(), ["workdays-only"]);

      await page.goto("/calendars");
      await page.getByLabel("More actions for weekends").click();
      await page.getByRole("menuitem", { name: "Delete" }).click();
      const dialog = page.getByRole("dialog", { name: "Delete calendar weekends?" });
      await dialog.getByRole("button", { name: "Delete" }).click();
      await dialog.getByRole("alert").getByText("workdays-only").waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      const [job] = (await call("GET", "/jobs?q=workdays-only")).items;
      await call("PATCH", `/jobs/${job.id}`, { schedule: { calendar: null } });
      await page.getByLabel("More actions for weekends").click();
      await page.getByRole("menuitem", { name: "Delete" }).click();
      await dialog.getByRole("button", { name: "Delete" }).click();
      await page.getByRole("link", { name: "weekends" }).waitFor({ state: "detached" });
    },
  );

  scene(stage, "a viewer can see a calendar's days off, but not change them", { as: "viewer" }, async (page) => {
    await call("POST", "/calendars", {
      name: "closing-days",
      description: "The books are closed.",
      weekdays: ["sunday"],
      dates: [`${year - 1}-12-31`],
    });
    await page.goto("/calendars");
    await page.getByRole("link", { name: "closing-days" }).click();
    await heading(page, "closing-days");
    await ready(page);
    await page.locator(".day-off").getByText("31").waitFor();
    assert.equal(await page.locator("main form, main button[data-day]").count(), 0);
  });
}
