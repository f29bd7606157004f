// The scene of executors of XXL-JOB at a gateway. It is part of ../live.test.mjs.
import assert from "node:assert/strict";
import { until } from "./belfry.mjs";
import { ready, scene } from "./scene.mjs";
import { xxlExecutor } from "./xxlexecutor.mjs";

export function xxljob(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "a group of XXL-JOB executors says how they are connected and what they cannot do, and the run page that a run was sent without an answer",
    { as: "admin" },
    async (page) => {
      await call("POST", "/groups", { name: "payroll" });
      const group = page.getByRole("region", { name: "payroll" });
      await page.goto("/executors?open=payroll");
      await group.getByText("Or executors of XXL-JOB, unchanged").click();
      await group.getByText("belfry group xxl-token payroll --token-stdin --allow").waitFor();
      const token = "the-token-of-payroll";
      await call("PUT", "/groups/payroll/xxl-job", { token, app_name: "Payroll.App", networks: ["127.0.0.1"] });
      await group.getByText("none has registered").waitFor();
      await group.getByText("xxl.job.executor.appname=Payroll.App").waitFor();
      await group.getByText("--allow 127.0.0.1/32 --alias Payroll.App").waitFor();

      const executor = await xxlExecutor(stage.gateway, "Payroll.App", token);
      try {
        // The gateway reads the settings of groups every two seconds.
        await until("the registration", () =>
          executor.register().then(
            () => true,
            () => false,
          ),
        );
        const row = group.locator("tbody tr");
        await row.getByText("any handler").waitFor();
        await page.setViewportSize({ width: 1600, height: 900 });
        await row.getByText("Java · Java/17.0.9").waitFor();
        await group.getByText("Java: 1", { exact: true }).waitFor();
        await group.getByText("What these executors cannot do").click();
        await group.getByText("Belfry never sends it again.").waitFor();
        assert.equal(await group.getByText(/executor-go reports/).count(), 0, "a limit of other executors is listed");

        const job = (name, handler, rest) =>
          call("POST", "/jobs", { name, group: "payroll", handler, schedule: { kind: "none" }, ...rest });
        const trigger = async (j) => (await call("POST", `/jobs/${j.id}/trigger`, {})).run_ids[0];

        // The executor refuses a handler that it does not have.
        await trigger(await job("pays-nobody", "absent"));
        await row.getByText("lacks: absent").waitFor();

        // It does not answer, so that the run may be running.
        const pays = await job("pays", "silent");
        const run = await trigger(pays);
        await page.goto(`/runs/${run}`);
        await page.locator(".verdict").getByText("Sent, no answer").waitFor();
        await page.getByRole("button", { name: "Kill" }).click();
        await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
        await page.locator(".verdict").getByText("Only the executor's callback confirms the kill.").waitFor();
        const { logId } = executor.runs.find((r) => r.executorHandler === "silent");
        await executor.ends(logId, 500, "[job running, killed]");
        await page.locator("h1 .state-cancelled").waitFor();
        await page.locator(".verdict").getByText("Sent, no answer").waitFor({ state: "detached" });

        // The form has the field that only such groups have.
        await page.goto(`/jobs/${pays.id}/edit`);
        await page.getByRole("button", { name: "Show and change" }).click();
        await page.locator("label", { hasText: "Retry lost runs at XXL-JOB executors" }).click();
        await page.getByRole("button", { name: "Save", exact: true }).click();
        await page.waitForURL(`/jobs/${pays.id}`);
        assert.equal((await call("GET", `/jobs/${pays.id}`)).retry_unknown, true);
        await page.getByRole("tab", { name: "Definition" }).click();
        await page.getByText("yes; a handler may run twice at the same time").waitFor();

        // A callback that belongs to no run is a dead letter, which cannot be replayed.
        await executor.ends(7, 200, "");
        await until("the dead letter", async () => (await call("GET", "/dead-letters?kind=callback")).items[0]);
        await page.goto("/dead-letters");
        await ready(page);
        await page.getByRole("group", { name: "Kind" }).getByRole("button", { name: "Callback" }).click();
        const letter = page.locator("tbody tr", { hasText: "xxl-job.callback" });
        await letter.getByRole("cell", { name: "Callback", exact: true }).waitFor();
        assert.equal(await letter.getByRole("button", { name: "Replay" }).count(), 0, "a callback can be replayed");
        await letter.locator("[data-row]").click();
        await page.getByRole("dialog").getByText("Messages of this kind cannot be replayed.").waitFor();
      } finally {
        executor.stop();
      }
    },
  );
}
