// The stage of the browser tests: a standalone with demo jobs, a browser, two users, and an identity provider if it is wanted.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { browserPath, logIn, provider, start, until } from "./belfry.mjs";

/**
 * onStage runs scenes, one after the other, on a stage of their own. flags are additional flags of the standalone. With identities, users can also
 * log in through an identity provider.
 */
export function onStage({ flags = [], identities = false }, ...scenes) {
  if (!browserPath) {
    test(
      "the web console in a browser",
      { skip: !process.env.CI && "NOT COVERED: there is no Chromium; install one or set CHROMIUM" },
      () => assert.fail("there is no Chromium"),
    );
    return;
  }
  const stage = {}; // base, browser, the identity provider, and the sessions of the users admin and viewer
  before(() => build(stage, flags, identities), { timeout: 600_000 });
  after(async () => {
    await stage.browser?.close();
    await stage.stop?.();
    await stage.provider?.stop();
  });
  for (const scene of scenes) scene(stage);
}

async function build(stage, flags, identities) {
  if (identities) stage.provider = await provider();
  const server = await start(
    "--demo",
    "--allow-script",
    "sh",
    ...flags,
    ...(identities
      ? [
          ...["--oidc-issuer", stage.provider.issuer, "--oidc-client-id", "belfry"],
          ...["--oidc-client-secret", "belfry-secret", "--oidc-name", "The Company", "--oidc-role", "ops=operator"],
        ]
      : []),
  );
  Object.assign(stage, server, { admin: server });
  const { call } = server;
  await stage.provider?.serve(server.base);
  await call("POST", "/users", {
    username: "onlooker",
    password: "looks-at-things",
    role: "viewer",
    groups: ["demo"],
  });
  stage.viewer = await logIn(server.base, "onlooker", "looks-at-things");
  stage.browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
  await until("the demo's executor", async () => (await call("GET", "/groups/demo")).instances > 0);
}
