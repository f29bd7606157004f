// A real standalone with its own data directory, and functions that tests and screenshots use outside the browser.
import { execFile, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** browserPath is the path of Chromium: CHROMIUM, or an installed one. */
export const browserPath = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((p) => p && existsSync(p));

/** until calls ask until the result is truthy. After the timeout it throws an error that names what it waited for. */
export async function until(what, ask, seconds = 120) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`timed out after ${seconds} s waiting for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** start runs a standalone with a random admin password. BELFRY is the binary; without it, start builds one. */
export async function start(...flags) {
  const work = mkdtempSync(join(tmpdir(), "belfry-browser-"));
  const password = randomBytes(12).toString("hex");
  let binary = process.env.BELFRY;
  if (!binary) {
    binary = join(work, "belfry");
    execFileSync("go", ["build", "-o", binary, "."], {
      cwd: fileURLToPath(new URL("../../../..", import.meta.url)),
      stdio: "inherit",
    });
  }
  const child = spawn(
    binary,
    ["standalone", "--data-dir", join(work, "data"), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", ...flags],
    {
      env: { ...process.env, BELFRY_ADMIN_PASSWORD: password },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let said = "";
  for (const out of [child.stdout, child.stderr]) out.on("data", (d) => (said += d));
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await gone;
    }
    rmSync(work, { recursive: true, force: true });
  };
  try {
    const base = await until(
      "the standalone to be ready",
      async () => {
        if (child.exitCode !== null) throw new Error("the standalone ended");
        const url = said.match(/console: (http:\/\/\S+)/)?.[1];
        return (
          url &&
          (await fetch(`${url}/readyz`).then(
            (r) => r.ok,
            () => false,
          )) &&
          url.replace(/\/$/, "")
        );
      },
      300,
    );
    const admin = await logIn(base, "admin", password);
    const gateway = () => said.match(/gateway: (http:\/\/\S+)/)?.[1];
    if (flags.includes("--gateway")) await until("the gateway", gateway);
    return {
      base,
      nats: said.match(/nats: (nats:\/\/\S+)/)[1],
      gateway: gateway(), // with the flag --gateway
      password,
      stop,
      binary,
      data: join(work, "data"),
      ...admin,
    };
  } catch (e) {
    await stop();
    throw new Error(`${e.message}; its output:\n${said}`, { cause: e });
  }
}

/** logIn returns the cookie of a new session, and call, which sends API requests as its user and throws on errors. */
export async function logIn(base, username, password) {
  const answer = await fetch(`${base}/api/v1/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ username, password }),
  });
  if (!answer.ok) throw new Error(`cannot log in as ${username}: ${answer.status} ${await answer.text()}`);
  const [name, value] = answer.headers.getSetCookie()[0].split(";")[0].split("=");
  const call = async (method, path, body) => {
    const r = await fetch(`${base}/api/v1${path}`, {
      method,
      headers: { Cookie: `${name}=${value}`, ...(body ? { "Content-Type": "application/json" } : {}) },
      body: body && JSON.stringify(body),
    });
    const text = await r.text();
    if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
  return { cookies: [{ name, value, url: base, httpOnly: true, sameSite: "Strict" }], call };
}

/** heartbeat registers an instance over plain NATS, like an executor. The heartbeat contains the fields of message. */
export function heartbeat(nats, token, message) {
  const body = JSON.stringify({
    v: 1,
    boot_id: randomBytes(8).toString("hex"),
    running: 0,
    seq: 1,
    draining: false,
    started_at: new Date().toISOString(),
    ...message,
  });
  const inbox = `_INBOX_${message.group}.1`;
  return speak(
    nats,
    token,
    `${message.group}.${message.instance}`,
    `SUB ${inbox} 1\r\n${pub(`$KV.belfry_instances.${message.group}.${message.instance} ${inbox}`, body)}`,
    /"seq":/,
    /"error"/,
  );
}

/** publish sends a message over plain NATS. NATS does not acknowledge it, so publish waits for a PONG. */
export const publish = (nats, token, subject, body) =>
  speak(nats, token, "browser test", `${pub(subject, body)}PING\r\n`, /^PONG/m);

const pub = (subject, body) => `PUB ${subject} ${Buffer.byteLength(body)}\r\n${body}\r\n`;

/** speak logs in to NATS, sends protocol lines, and waits for an answer that matches good or bad. */
function speak(nats, token, name, what, good, bad = /-ERR/) {
  const { hostname, port } = new URL(nats);
  return new Promise((resolve, reject) => {
    let said = "";
    const s = connect(Number(port), hostname, () =>
      s.write(
        `CONNECT ${JSON.stringify({ auth_token: token, name, verbose: false, headers: true, lang: "test", version: "1", protocol: 1 })}\r\n${what}`,
      ),
    );
    s.setTimeout(120_000, () => s.destroy(new Error(`NATS does not send the expected answer: ${said}`)));
    s.on("data", (d) => {
      said += d;
      if (/^PING/m.test(d)) s.write("PONG\r\n");
      if (/-ERR/.test(said) || bad.test(said)) s.destroy(new Error(said));
      else if (good.test(said)) {
        s.destroy();
        resolve();
      }
    });
    s.on("error", reject);
  });
}

/** provider runs the identity provider (OpenID Connect) of the API's tests. PROVIDER is the binary; without it, provider builds one. */
export async function provider() {
  const work = mkdtempSync(join(tmpdir(), "belfry-provider-"));
  const binary = process.env.PROVIDER ?? join(work, "provider");
  const cwd = fileURLToPath(new URL("../../../api/testdata/oidcserver", import.meta.url));
  try {
    const env = { ...process.env, GOWORK: "off" }; // the provider's module is not in the workspace
    if (!process.env.PROVIDER)
      await new Promise((resolve, reject) =>
        execFile("go", ["build", "-o", binary, "."], { cwd, env }, (e, _, said) =>
          e ? reject(new Error(`${e.message}\n${said}`)) : resolve(),
        ),
      );
  } catch (e) {
    rmSync(work, { recursive: true, force: true });
    throw e;
  }
  const child = spawn(binary, { stdio: ["ignore", "pipe", "inherit"] });
  const gone = new Promise((resolve) => child.once("exit", resolve));
  let said = "";
  child.stdout.on("data", (d) => (said += d));
  const stop = async () => {
    child.kill();
    await gone;
    rmSync(work, { recursive: true, force: true });
  };
  try {
    const issuer = await until("the identity provider", () => said.match(/^(http\S+)\n/)?.[1]);
    const put = async (path, body) => {
      const answer = await fetch(issuer + path, { method: "PUT", body });
      if (!answer.ok) throw new Error(`PUT ${path}: ${answer.status}`);
    };
    return {
      issuer,
      stop,
      /** user sets the claims of the user who is logged in at the provider. Without claims no user is logged in. */
      user: (claims) => put("/user", claims ? JSON.stringify(claims) : ""),
      /** serve sets the console whose log-ins the provider accepts. */
      serve: (base) => put(`/redirect?to=${encodeURIComponent(`${base}/api/v1/auth/oidc/callback`)}`),
    };
  } catch (e) {
    await stop();
    throw e;
  }
}
