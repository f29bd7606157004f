// Scenes of lists that do not move under the reader. They are part of ../live.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { ready, scene } from "./scene.mjs";

export function lists(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "new runs wait while the pointer is in the list, and a live list does not shift the page",
    { as: "admin", viewport: { width: 1280, height: 720 } },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "comes-and-goes",
        group: "demo",
        handler: "echo",
        param: "a",
        block: "parallel",
        schedule: { kind: "none" },
      });
      const run = async (n) => {
        for (let i = 0; i < n; i++) await call("POST", `/jobs/${job.id}/trigger`, {});
      };
      await run(30);
      await page.goto(`/runs?job_id=${job.id}`);
      await page.getByText("Live", { exact: true }).waitFor();
      await page.locator("tbody tr").nth(29).waitFor();
      await until("the ends of the runs", async () => (await page.locator("tbody .state-succeeded").count()) === 30);
      const first = page.locator("tbody tr").first();
      const link = await first.locator("[data-row]").getAttribute("href");
      await page.evaluate(() => {
        globalThis.shift = 0;
        new PerformanceObserver((l) => l.getEntries().forEach((e) => (globalThis.shift += e.value))).observe({
          type: "layout-shift",
        });
      });
      // The pointer is in the list: new runs wait.
      await first.hover();
      await run(3);
      const waiting = page.getByRole("button", { name: "3 new" });
      await waiting.waitFor();
      assert.equal(
        await first.locator("[data-row]").getAttribute("href"),
        link,
        "the list has moved under the pointer",
      );
      assert.equal(await page.locator("tbody tr").count(), 30);
      // The pointer leaves: they appear.
      await page.getByRole("heading", { level: 1 }).hover();
      await page.locator("tbody tr").nth(32).waitFor();
      await waiting.waitFor({ state: "detached" });
      // The focus in the list holds them too.
      await first.locator("[data-row]").focus();
      await run(2);
      await page.getByRole("button", { name: "2 new" }).click();
      await page.locator("tbody tr").nth(34).waitFor();
      await page.evaluate(() => document.activeElement.blur());
      // Without pointer and focus in the list, runs appear one after the other, and no element moves.
      for (let i = 0; i < 20; i++) {
        await run(1);
        await page
          .locator("tbody tr")
          .nth(35 + i)
          .waitFor();
      }
      const shift = await page.evaluate(() => globalThis.shift);
      assert.ok(shift < 0.1, `the page has shifted by ${shift}`);
    },
  );

  scene(
    stage,
    "during live updates, overview, job and list of runs shift by less than 0.1, on a desktop and on a phone",
    { as: "admin" },
    async (first, context) => {
      const job = await call("POST", "/jobs", {
        name: "ticks-and-fails",
        group: "demo",
        block: "parallel",
        schedule: { kind: "fixed_rate", every: "1s" },
        script: { language: "sh", code: "s=$(date +%s)\nsleep 0.$((s % 10))\nexit $((s % 2))\n" },
      });
      // The health of the job above changes. Another job fails each time, so that the overview shows it and the head of its page stays as it is.
      const failing = await call("POST", "/jobs", {
        name: "fails-each-time",
        group: "demo",
        block: "parallel",
        schedule: { kind: "fixed_rate", every: "2s" },
        script: { language: "sh", code: "exit 1\n" },
      });
      // A browser has six connections to a server for all pages of a context, and each page keeps one for its stream.
      const { cookies } = await context.storageState();
      const phone = await context
        .browser()
        .newContext({ baseURL: stage.base, locale: "en-GB", reducedMotion: "reduce" });
      await phone.addCookies(cookies);
      try {
        const runs = async () => (await call("GET", `/runs?job_id=${job.id}&state=succeeded,failed&limit=500`)).items;
        const pages = [];
        for (const [where, size] of [
          [context, { width: 1280, height: 900 }],
          [phone, { width: 360, height: 740 }],
        ]) {
          for (const path of ["/?span=1h", `/jobs/${failing.id}`, "/runs"]) {
            const page = pages.length === 0 ? first : await where.newPage();
            await page.setViewportSize(size);
            await page.goto(path);
            await ready(page);
            pages.push({ page, what: `${path} at ${size.width} px` });
          }
        }
        await until("runs on the pages", async () => (await runs()).length > 12);
        for (const p of pages) {
          await p.page.locator(".state-failed").first().waitFor();
          // The head of a job's page grows when the job begins to fail. Later it stays as it is.
          if (p.what.startsWith("/jobs/")) await p.page.locator(".health-failing").waitFor();
          p.before = await p.page.locator("main").innerText();
          await p.page.evaluate(() => {
            globalThis.shifts = [];
            new PerformanceObserver((l) => {
              for (const e of l.getEntries())
                globalThis.shifts.push({
                  value: e.value,
                  of: e.sources.map((s) => s.node?.className || s.node?.parentElement?.className || s.node?.nodeName),
                });
            }).observe({ type: "layout-shift" });
          });
        }
        const [begun, more] = [(await runs()).length, process.env.BELFRY_TEST_LONG ? 60 : 25]; // one each second
        await until("more runs", async () => (await runs()).length >= begun + more, 600);
        for (const { page, what, before } of pages) {
          assert.notEqual(await page.locator("main").innerText(), before, `${what} has not changed`);
          const shifts = await page.evaluate(() => globalThis.shifts);
          const sum = shifts.reduce((n, s) => n + s.value, 0);
          const worst = shifts.sort((a, b) => b.value - a.value).slice(0, 5);
          assert.ok(sum < 0.1, `${what} has shifted by ${sum}: ${JSON.stringify(worst)}`);
        }
      } finally {
        await phone.close();
        for (const { id } of [job, failing]) await call("POST", `/jobs/${id}/disable`);
      }
    },
  );

  scene(
    stage,
    "on the overview and on a job's page, new rows wait while the pointer, the focus or the scroll position is in a list",
    { as: "admin", viewport: { width: 1280, height: 720 } },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "fails-when-told",
        group: "demo",
        block: "parallel",
        schedule: { kind: "none" },
        script: { language: "sh", code: "exit 1\n" },
      });
      const again = async (n) => {
        for (let i = 0; i < n; i++) await call("POST", `/jobs/${job.id}/trigger`, {});
      };
      // On the overview, each row is another job that fails.
      const another = async (n) => {
        for (let i = 0; i < n; i++) {
          const { id } = await call("POST", "/jobs", {
            name: `fails-${++failed}`,
            group: "demo",
            schedule: { kind: "none" },
            script: { language: "sh", code: "exit 1\n" },
          });
          await call("POST", `/jobs/${id}/trigger`, {});
        }
      };
      let failed = 0;
      await again(3);
      await another(3);
      await until("what needs attention", async () => {
        const names = (await call("GET", "/attention")).items.map((i) => i.job_name);
        return [1, 2, 3].every((n) => names.includes(`fails-${n}`));
      });
      for (const [path, region, fail] of [
        ["/?span=1h", "Needs attention", another],
        [`/jobs/${job.id}`, "Recent runs", again],
      ]) {
        await page.goto(path);
        const list = page.getByRole("region", { name: region });
        const links = list.locator("[data-row]");
        const top = () => links.first().getAttribute("href");
        const free = () => page.getByRole("heading", { level: 1 }).hover();
        await links.nth(2).waitFor();
        await list.getByText("exit status 1", { exact: false }).first().waitFor();
        // The pointer.
        await links.nth(1).hover();
        let held = await top();
        await fail(2);
        await list.getByRole("button", { name: "2 new" }).waitFor();
        assert.equal(await top(), held, `${region}: the list has moved under the pointer`);
        await free();
        await list.getByRole("button", { name: "2 new" }).waitFor({ state: "detached" });
        await until("the new rows", async () => (await top()) !== held);
        // The focus, until the chip is used.
        await links.first().focus();
        held = await top();
        await fail(1);
        const chip = list.getByRole("button", { name: "1 new" });
        await chip.waitFor();
        assert.equal(await top(), held, `${region}: the list has moved under the focus`);
        await chip.click();
        await until("the new row", async () => (await top()) !== held);
        await page.evaluate(() => document.activeElement.blur());
        await free();
        // The scroll position.
        await page.evaluate(() => {
          document.querySelector("main").style.minHeight = "3000px";
        });
        await list.evaluate((el) => scrollTo(0, el.getBoundingClientRect().top + scrollY + 60));
        held = await top();
        await fail(1);
        await chip.waitFor();
        assert.equal(await top(), held, `${region}: the list has moved while it is scrolled`);
        await chip.click();
        await until("the new row", async () => (await top()) !== held);
      }
    },
  );
}
