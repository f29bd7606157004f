// The scene of input that looks like markup. It is part of ../appearance.test.mjs.
import assert from "node:assert/strict";
import { heartbeat, until } from "./belfry.mjs";
import { ready, scene } from "./scene.mjs";

export function markup(stage) {
  const call = (...of) => stage.call(...of);

  scene(
    stage,
    "markup, links and control sequences in names, logs and other input are shown as text",
    { as: "admin", refusals: [404] },
    async (page) => {
      const brief = (where) => `<img src=x onerror="window.pwned='${where}'">`;
      const evil = (where) => `${brief(where)}<a href="javascript:window.pwned='${where}'">${where}</a>`;
      const { token } = await call("POST", "/groups", { name: "evil", description: evil("group") });
      // A heartbeat is valid for ten seconds, and a busy machine takes longer for the pages before the one of executors.
      const register = () =>
        heartbeat(stage.nats, token, {
          group: "evil",
          instance: "evil-1",
          handlers: [evil("handler")],
          script_languages: [],
          capacity: 4,
          labels: { zone: evil("label") },
          version: evil("version"),
          host: evil("host"),
        });
      await register();
      await call("POST", "/groups/evil/pause", { reason: evil("pause") });
      const job = await call("POST", "/jobs", {
        name: evil("job"),
        group: "demo",
        description: evil("description"),
        author: brief("author"),
        tags: [brief("tag")],
        param: evil("param"),
        schedule: { kind: "none" },
        script: {
          language: "sh",
          remark: evil("remark"),
          code: `# ${evil("code")}
echo "$BELFRY_PARAM"
printf '%s\\n' '${evil("log").replaceAll("'", `'"'"'`)}'
printf '\\033]8;;javascript:alert(1)\\033\\\\click me\\033]8;;\\033\\\\ \\033[2J\\033[31;5mred\\033[0m \\033]0;title\\007 a\\rb\\n'
echo '::output ${evil("output").replaceAll("'", `'"'"'`)}'
exit 3
`,
        },
      });
      await call("POST", "/event-triggers", { name: "evil.happened", job_id: job.id, param: "{{.event.data.text}}" });
      await call("POST", "/events/evil.happened", { text: evil("event") });
      const run = await until(
        "the run of the event",
        async () => (await call("GET", `/runs?job_id=${job.id}&state=failed&limit=1`)).items[0],
      );
      const child = await call("POST", "/jobs", {
        name: evil("child"),
        group: "evil",
        handler: evil("handler"),
        schedule: { kind: "none" },
        children: [{ job_id: job.id }],
      });

      const untouched = async (path) => {
        assert.equal(await page.evaluate(() => window.pwned), undefined, `${path} ran a script`);
        assert.equal(
          await page.locator('img[src="x"], [onerror], a[href^="javascript:" i]').count(),
          0,
          `${path} has elements that were input as text`,
        );
      };
      for (const [path, shown] of [
        ["/", []],
        ["/jobs", ["job", "child", "tag"]],
        [`/jobs/${job.id}`, ["job", "description", "tag"]],
        [`/jobs/${job.id}?tab=definition`, ["param", "author"]],
        [`/jobs/${job.id}?tab=script`, ["code"]],
        [`/jobs/${child.id}?tab=definition`, ["child", "handler"]],
        [`/jobs/${job.id}/edit`, ["code"]],
        ["/runs", ["job"]],
        [`/runs/${run.id}`, ["job", "event", "log", "output"]],
        ["/executors?open=evil", ["group", "handler", "host", "version", "pause"]],
        ["/events", ["job"]],
        ["/audit", []],
      ]) {
        if (path.startsWith("/executors")) await register();
        await page.goto(path);
        await ready(page);
        for (const where of shown) {
          await page
            .locator("main")
            .getByText(brief(where))
            .first()
            .waitFor()
            .catch(() => assert.fail(`${path} does not show the text of the ${where}`));
        }
        await untouched(path);
      }
      await page.goto(`/runs/${run.id}`);
      await page.getByRole("log").getByText("click me").waitFor();
      await page.getByRole("log").locator(".fg-red").getByText("red").waitFor();
      assert.ok(!(await page.title()).startsWith("title"));
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox").fill("<img");
      await page.getByRole("option").first().waitFor();
      await untouched("the palette");
    },
  );
}
