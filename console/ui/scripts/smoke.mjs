// Logs in with a browser to a real standalone, makes a job from the form, sees it succeed and reads its log.
// BELFRY is the binary, else one is built; CHROMIUM is the browser.
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const browserPath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!browserPath || !existsSync(browserPath)) {
  console.log("NOT COVERED: the web console in a browser, as there is no Chromium; install one or set CHROMIUM");
  process.exit(process.env.CI ? 1 : 0);
}

const work = mkdtempSync(join(tmpdir(), "belfry-smoke-"));
const password = randomBytes(12).toString("hex");
let server, browser;
const must = (holds, what) => {
  if (!holds) throw new Error(what);
};

try {
  let binary = process.env.BELFRY;
  if (!binary) {
    binary = join(work, "belfry");
    execFileSync("go", ["build", "-o", binary, "."], { cwd: fileURLToPath(new URL("../../..", import.meta.url)), stdio: "inherit" });
  }
  server = spawn(binary, ["standalone", "--demo", "--data-dir", join(work, "data"), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0"], {
    env: { ...process.env, BELFRY_ADMIN_PASSWORD: password }, stdio: ["ignore", "pipe", "pipe"],
  });
  const base = await address(server);

  browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
  const context = await browser.newContext({ locale: "en-GB", viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const complaints = [];
  // Refusals that belong to the way (not logged in yet, a faulty form) are written to the console by the browser itself.
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !/status of (401|422)/.test(m.text()) && complaints.push(m.text()));
  page.on("pageerror", (e) => complaints.push(e.message));

  // Whoever is sent to the log-in page comes back to where they wanted to go.
  await page.goto(`${base}/jobs/new`);
  await page.getByLabel("User").fill("admin");
  await page.getByLabel("Password", { exact: true }).fill("wrong, surely");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("The user or the password is wrong.").waitFor();
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${base}/jobs/new`);

  // A faulty field is marked while one types, and the times come when it is mended.
  await page.getByLabel("Cron expression").fill("61 2 * * *");
  await page.locator(".cron-bad").getByText("61").waitFor();
  await page.getByLabel("Cron expression").fill("30 2 * * *");
  await page.locator(".preview tbody tr").nth(9).waitFor();

  // What the server refuses is shown at its field.
  await page.getByRole("textbox", { name: /^Handler/ }).fill("echo");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.locator(".mantine-TextInput-error").first().waitFor();
  await page.getByRole("textbox", { name: "Name" }).fill("first-job");
  await page.getByLabel("Param").fill("hello from the form <b>& \u001b[31mred");
  await page.getByRole("button", { name: "Save and run now" }).click();

  await page.waitForURL(/\/runs\/[0-9a-f-]{36}$/);
  await page.locator("h1 .state-succeeded").waitFor();
  await page.locator(".log-line").getByText("hello from the form <b>&").first().waitFor();
  await page.getByText("Complete").waitFor();

  // The palette finds the job, by keyboard alone.
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("first-job");
  await page.getByRole("option", { name: "first-job" }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/jobs\/\d+$/);
  await page.getByRole("heading", { name: "first-job" }).waitFor();

  // Chinese is remembered, and every page is there at 360 pixels without a bar to scroll sideways.
  await page.getByRole("button", { name: "简体中文" }).click();
  await page.setViewportSize({ width: 360, height: 740 });
  for (const [path, title] of [["/", "概览"], ["/jobs", "任务"], ["/runs", "运行"], ["/executors", "执行器"], ["/events", "事件"], ["/alert-channels", "告警渠道"], ["/tokens", "令牌"], ["/users", "用户"], ["/audit", "审计"], ["/jobs/new", "新建任务"]]) {
    await page.goto(base + path);
    await page.getByRole("heading", { level: 1, name: title }).waitFor();
    await page.waitForLoadState("load");
    must((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${path} is wider than 360 pixels`);
  }
  must(complaints.length === 0, `the browser's console says:\n${complaints.join("\n")}`);
  console.log("ok: log-in, form, run, log, palette, Chinese, 360 pixels");
} catch (e) {
  const page = browser?.contexts()[0]?.pages()[0];
  if (page) {
    const shot = join(tmpdir(), "belfry-smoke-failed.png");
    await page.screenshot({ path: shot }).catch(() => undefined);
    console.error(`at ${page.url()}, see ${shot}`);
  }
  console.error(e);
  process.exitCode = 1;
} finally {
  await browser?.close();
  if (server && server.exitCode === null) {
    const gone = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    await gone;
  }
  rmSync(work, { recursive: true, force: true });
}

// address waits for the line that says where the console is, and for all parts to be ready.
async function address(child) {
  let said = "";
  for (const out of [child.stdout, child.stderr]) out.on("data", (d) => (said += d));
  const end = Date.now() + 60_000;
  while (Date.now() < end) {
    const url = said.match(/console: (http:\/\/\S+)/)?.[1];
    if (url && (await fetch(`${url}/readyz`).then((r) => r.ok, () => false))) return url.replace(/\/$/, "");
    if (child.exitCode !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`standalone did not come up:\n${said}`);
}
