// Scenes of events, alert channels and dead letters. They are part of ../browser.test.mjs.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { publish, until } from "./belfry.mjs";
import { scene } from "./scene.mjs";

export function events(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "a faulty filter of a new trigger is marked, and the correct trigger fires its job",
    { as: "admin", refusals: [422] },
    async (page) => {
      const job = await call("POST", "/jobs", {
        name: "ships",
        group: "demo",
        handler: "echo",
        schedule: { kind: "none" },
      });
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
