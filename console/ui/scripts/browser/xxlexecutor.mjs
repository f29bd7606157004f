// An executor of XXL-JOB, as far as scenes need it: it registers at a gateway, and answers its requests.
import { createServer } from "node:http";

/**
 * xxlExecutor starts an executor. It answers no request that starts the handler "silent", and has no handler "absent". It returns its address, the
 * requests that start runs, a function that reports the end of a run, and a function that stops it.
 */
export async function xxlExecutor(gateway, app, token) {
  const runs = [];
  const server = createServer((request, answer) => {
    let body = "";
    request
      .on("data", (d) => (body += d))
      .on("end", () => {
        const say = (code, msg) => answer.end(JSON.stringify({ code, msg }));
        if (request.url !== "/run") return say(200);
        const run = JSON.parse(body);
        runs.push(run);
        if (run.executorHandler === "silent") return request.socket.destroy();
        if (run.executorHandler === "absent") return say(500, "job handler [absent] not found.");
        say(200);
      });
  });
  server.keepAliveTimeout = 90_000; // as Java executors; a shorter one closes connections that the gateway uses again
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${server.address().port}/`;
  const tell = async (path, body) => {
    const r = await fetch(`${gateway}/xxl-job-admin/api/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "User-Agent": "Java/17.0.9", "XXL-JOB-ACCESS-TOKEN": token },
      body: JSON.stringify(body),
    });
    const { code, msg } = await r.json();
    if (code !== 200) throw new Error(`the gateway answers ${path} with ${code}: ${msg}`);
  };
  return {
    address,
    runs,
    register: () => tell("registry", { registryGroup: "EXECUTOR", registryKey: app, registryValue: address }),
    ends: (logId, handleCode, handleMsg) =>
      tell("callback", [{ logId, logDateTim: Date.now(), handleCode, handleMsg }]),
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
