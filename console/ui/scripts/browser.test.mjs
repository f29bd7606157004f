// Tests of the web console in Chromium on a real standalone: node --test scripts/browser.test.mjs.
// BELFRY is the binary; without it, the tests build one. CHROMIUM is the browser. A failed scene saves a screenshot below
// BELFRY_SHOTS.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { access } from "./browser/access.mjs";
import { browserPath, logIn, provider, start, until } from "./browser/belfry.mjs";
import { calendars } from "./browser/calendars.mjs";
import { changes } from "./browser/changes.mjs";
import { drafts } from "./browser/drafts.mjs";
import { executors } from "./browser/executors.mjs";
import { focus } from "./browser/focus.mjs";
import { jobs } from "./browser/jobs.mjs";
import { lists } from "./browser/lists.mjs";
import { markup } from "./browser/markup.mjs";
import { messages } from "./browser/messages.mjs";
import { pages } from "./browser/pages.mjs";
import { plain } from "./browser/plain.mjs";
import { runs } from "./browser/runs.mjs";
import { widths } from "./browser/widths.mjs";

const stage = {}; // base, browser, the identity provider, and the sessions of the users admin and viewer

if (!browserPath) {
  test(
    "the web console in a browser",
    { skip: !process.env.CI && "NOT COVERED: there is no Chromium; install one or set CHROMIUM" },
    () => assert.fail("there is no Chromium"),
  );
} else {
  before(
    async () => {
      stage.provider = await provider();
      const server = await start(
        "--demo",
        "--allow-script",
        "sh",
        "--oidc-issuer",
        stage.provider.issuer,
        "--oidc-client-id",
        "belfry",
        "--oidc-client-secret",
        "belfry-secret",
        "--oidc-name",
        "The Company",
        "--oidc-role",
        "ops=operator",
      );
      Object.assign(stage, server, { admin: server });
      const { call } = server;
      await stage.provider.serve(server.base);
      await call("POST", "/users", {
        username: "onlooker",
        password: "looks-at-things",
        role: "viewer",
        groups: ["demo"],
      });
      stage.viewer = await logIn(server.base, "onlooker", "looks-at-things");
      stage.browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
      await until("the demo's executor", async () => (await call("GET", "/groups/demo")).instances > 0);
    },
    { timeout: 600_000 },
  );
  after(async () => {
    await stage.browser?.close();
    await stage.stop?.();
    await stage.provider?.stop();
  });
  access(stage);
  jobs(stage);
  runs(stage);
  pages(stage);
  markup(stage);
  changes(stage);
  calendars(stage);
  messages(stage);
  drafts(stage);
  widths(stage);
  plain(stage);
  executors(stage);
  lists(stage);
  focus(stage);
}
