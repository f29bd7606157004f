// A real standalone with a data directory of its own, and what tests and screenshots do with it from outside the browser.
import { execFile, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** browserPath is the Chromium to use: CHROMIUM, or one that is installed. */
export const browserPath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => p && existsSync(p));

/** until asks again until the answer is truthy, and says what it waited for if that never comes. */
export async function until(what, ask, seconds = 120) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`waited ${seconds} s in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** start runs a standalone. BELFRY is the binary, else one is built. Its admin's password is drawn. */
export async function start(...flags) {
  const work = mkdtempSync(join(tmpdir(), "belfry-browser-"));
  const password = randomBytes(12).toString("hex");
  let binary = process.env.BELFRY;
  if (!binary) {
    binary = join(work, "belfry");
    execFileSync("go", ["build", "-o", binary, "."], { cwd: fileURLToPath(new URL("../../../..", import.meta.url)), stdio: "inherit" });
  }
  const child = spawn(binary, ["standalone", "--data-dir", join(work, "data"), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", ...flags], {
    env: { ...process.env, BELFRY_ADMIN_PASSWORD: password }, stdio: ["ignore", "pipe", "pipe"],
  });
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
    const base = await until("the standalone to be ready", async () => {
      if (child.exitCode !== null) throw new Error("the standalone ended");
      const url = said.match(/console: (http:\/\/\S+)/)?.[1];
      return url && (await fetch(`${url}/readyz`).then((r) => r.ok, () => false)) && url.replace(/\/$/, "");
    }, 300);
    const admin = await logIn(base, "admin", password);
    return { base, nats: said.match(/nats: (nats:\/\/\S+)/)[1], password, stop, binary, data: join(work, "data"), ...admin };
  } catch (e) {
    await stop();
    throw new Error(`${e.message}; it said:\n${said}`, { cause: e });
  }
}

/** logIn returns a session's cookie, and call, which asks the API as its user and throws what it refuses. */
export async function logIn(base, username, password) {
  const answer = await fetch(`${base}/api/v1/auth/login`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ username, password }) });
  if (!answer.ok) throw new Error(`logging in as ${username}: ${answer.status} ${await answer.text()}`);
  const [name, value] = answer.headers.getSetCookie()[0].split(";")[0].split("=");
  const call = async (method, path, body) => {
    const r = await fetch(`${base}/api/v1${path}`, { method, headers: { Cookie: `${name}=${value}`, ...(body ? { "Content-Type": "application/json" } : {}) }, body: body && JSON.stringify(body) });
    const text = await r.text();
    if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
  return { cookies: [{ name, value, url: base, httpOnly: true, sameSite: "Strict" }], call };
}

/** heartbeat announces an instance as an executor would, over plain NATS, with whatever is put into it. */
export function heartbeat(nats, token, message) {
  const body = JSON.stringify({ v: 1, boot_id: randomBytes(8).toString("hex"), running: 0, seq: 1, draining: false, started_at: new Date().toISOString(), ...message });
  const inbox = `_INBOX_${message.group}.1`;
  return speak(nats, token, `SUB ${inbox} 1\r\n${pub(`$KV.belfry_instances.${message.group}.${message.instance} ${inbox}`, body)}`, /"seq":/, /"error"/);
}

/** publish sends a message over plain NATS, which says nothing where it has been taken. */
export const publish = (nats, token, subject, body) => speak(nats, token, `${pub(subject, body)}PING\r\n`, /^PONG/m);

const pub = (subject, body) => `PUB ${subject} ${Buffer.byteLength(body)}\r\n${body}\r\n`;

/** speak logs in to NATS, says something, and waits for the answer. */
function speak(nats, token, what, good, bad = /-ERR/) {
  const { hostname, port } = new URL(nats);
  return new Promise((resolve, reject) => {
    let said = "";
    const s = connect(Number(port), hostname, () => s.write(`CONNECT ${JSON.stringify({ auth_token: token, verbose: false, headers: true, lang: "test", version: "1", protocol: 1 })}\r\n${what}`));
    s.setTimeout(120_000, () => s.destroy(new Error(`NATS does not answer as it should: ${said}`)));
    s.on("data", (d) => {
      said += d;
      if (/^PING/m.test(d)) s.write("PONG\r\n");
      if (/-ERR/.test(said) || bad.test(said)) s.destroy(new Error(said));
      else if (good.test(said)) { s.destroy(); resolve(); }
    });
    s.on("error", reject);
  });
}

/** provider runs an identity provider (OpenID Connect), the one that the API's tests talk to. */
export async function provider() {
  const work = mkdtempSync(join(tmpdir(), "belfry-provider-"));
  const binary = join(work, "provider");
  const cwd = fileURLToPath(new URL("../../../api/testdata/oidcserver", import.meta.url));
  try {
    const env = { ...process.env, GOWORK: "off" }; // it is a module that the workspace does not use
    await new Promise((resolve, reject) => execFile("go", ["build", "-o", binary, "."], { cwd, env }, (e, _, said) => (e ? reject(new Error(`${e.message}\n${said}`)) : resolve())));
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
      issuer, stop,
      /** user says who is logged in there by claims, or nobody. */
      user: (claims) => put("/user", claims ? JSON.stringify(claims) : ""),
      /** serve says which console it works for. */
      serve: (base) => put(`/redirect?to=${encodeURIComponent(`${base}/api/v1/auth/oidc/callback`)}`),
    };
  } catch (e) {
    await stop();
    throw e;
  }
}
