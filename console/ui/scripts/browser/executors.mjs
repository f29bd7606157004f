// Scenes of the page of executors. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { ready, scene } from "./scene.mjs";

export function executors(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "the executors page is one table with a filter, and its refresh is one request, however many groups there are",
    { as: "admin" },
    async (page) => {
      for (let n = 1; n <= 12; n++) await call("POST", "/groups", { name: `fleet-${n}` });
      await call("POST", "/jobs", {
        name: "without-executors",
        group: "fleet-3",
        handler: "echo",
        schedule: { kind: "none" },
      });
      await page.goto("/executors");
      await ready(page);
      const row = (name) => page.locator("tbody tr").filter({ has: page.getByRole("button", { name, exact: true }) });
      await row("fleet-12").waitFor();
      assert.equal(await page.locator("main table").count(), 1);
      // Only the group that has jobs and no instance is red.
      await row("fleet-3").getByText("no live instance").waitFor();
      await row("fleet-4").getByText("not used").waitFor();
      const red = await page.evaluate(() => {
        const bad = document.createElement("i");
        bad.className = "bad";
        document.body.append(bad);
        const color = getComputedStyle(bad).color;
        bad.remove();
        return [...document.querySelectorAll("main tbody tr")]
          .filter((r) => [...r.querySelectorAll("*")].some((e) => getComputedStyle(e).color === color))
          .map((r) => r.querySelector("button").textContent.slice(1));
      });
      assert.ok(red.includes("fleet-3") && !red.includes("fleet-4") && !red.includes("demo"), `red: ${red}`);
      // Between two reads of the groups there is no other request.
      const asked = [];
      page.on("request", (r) => r.url().includes("/api/v1/groups") && asked.push(new URL(r.url()).pathname));
      for (let n = 0; n < 2; n++) await page.waitForResponse((r) => new URL(r.url()).pathname === "/api/v1/groups");
      assert.deepEqual([...new Set(asked)], ["/api/v1/groups"]);
      await page.getByLabel("Search groups").fill("fleet-3");
      await row("fleet-4").waitFor({ state: "detached" });
      await row("fleet-3").getByRole("button").click();
      await page.getByRole("region", { name: "fleet-3" }).getByText("No live instance").waitFor();
      assert.match(page.url(), /open=fleet-3/);
      await page.reload();
      await page.getByRole("region", { name: "fleet-3" }).waitFor();
    },
  );

  scene(stage, "an open group costs one request more for each refresh", { as: "admin" }, async (page) => {
    const asked = [];
    const of = (r) => new URL(r.url()).pathname;
    await page.goto("/executors?open=demo");
    await page.getByRole("region", { name: "demo" }).getByRole("link", { name: "demo-1" }).waitFor();
    page.on("request", (r) => of(r).startsWith("/api/v1/groups") && asked.push(of(r)));
    const refreshes = 5;
    for (let n = 0; n < refreshes; n++) await page.waitForResponse((r) => of(r) === "/api/v1/groups");
    const others = asked.filter((path) => path !== "/api/v1/groups");
    assert.ok(others.length <= refreshes, `${others.length} requests beside ${refreshes} refreshes`);
    assert.ok(others.includes("/api/v1/groups/demo/instances"), "the instances are not read again");
  });

  scene(
    stage,
    "commands and code name the servers as executors reach them, the group and TLS",
    { as: "admin" },
    async (page) => {
      await call("POST", "/groups", { name: "to-join" });
      const group = page.getByRole("region", { name: "to-join" });
      await page.goto("/executors?open=to-join");
      // Without a setting, it is the address of the built-in NATS.
      await group.getByText(`--group to-join --nats-url ${stage.nats}`).waitFor();
      await page.route("**/api/v1/system", async (route) => {
        const answer = await (await route.fetch()).json();
        await route.fulfill({ json: { ...answer, executors: { url: "tls://nats.example.com:4222", tls: true } } });
      });
      await page.reload();
      await group.getByText("--group to-join --nats-url tls://nats.example.com:4222").waitFor();
      await group.getByText("--nats-ca").waitFor();
      await group.getByText("Or your own program, with the SDK").click();
      const code = group.getByText("package main");
      for (const part of ['Group: "to-join"', 'NATSURL: "tls://nats.example.com:4222"', "RootCAs"])
        assert.ok((await code.innerText()).includes(part), `the code does not contain ${part}`);
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
}
