import type { Servers } from "../lib/executors";

/** sdkSnippet is a complete executor. It is not translated, because it is code. */
const sdkSnippet = `package main

import (
	"context"
	"log"

	"github.com/belfryhq/belfry/executor"
)

func main() {
	e, err := executor.New(executor.Config{Group: "default", NATSURL: "nats://127.0.0.1:4222", Token: "…"})
	if err != nil {
		log.Fatal(err)
	}
	e.HandleFunc("hello", func(ctx context.Context, run executor.Run) error {
		run.Log().Info("hello", "param", run.Param())
		return nil
	})
	log.Fatal(e.Run(context.Background()))
}
`;

/** sdkProgram is a complete executor of a group. */
export const sdkProgram = (group: string, { url, tls }: Servers): string =>
  sdkSnippet
    .replace('"default"', JSON.stringify(group))
    .replace(
      /"nats:.*/,
      (rest) =>
        rest.replace(/"nats:[^"]*"/, JSON.stringify(url)) +
        (tls
          ? '\n\t// With a CA of your own, add to the Config: NATSOptions: []nats.Option{nats.RootCAs("ca.pem")}'
          : ""),
    );

/** joinCommand starts the stock agent in a group. */
export const joinCommand = (group: string, token: string, { url, tls }: Servers): string =>
  `BELFRY_TOKEN=${token} belfry executor --group ${group} --nats-url ${url}${tls ? "\n# with a CA of your own, add: --nats-ca ca.pem" : ""}`;

/** openCommand opens a group for executors of XXL-JOB, which keep their access token. */
export const openCommand = (group: string, networks: string[] = [], app = group): string =>
  `belfry group xxl-token ${group} --token-stdin${(networks.length ? networks : ["10.0.0.0/8"]).map((n) => ` --allow ${n}`).join("")}${app === group ? "" : ` --alias ${quoted(app)}`} < access.token`;

const quoted = (word: string): string => (/^[\w.:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** xxlSettings are the settings that point an executor of XXL-JOB at a gateway. */
export const xxlSettings = (app: string, hasToken = true): string =>
  [
    `xxl.job.admin.addresses=http://${location.hostname}:8081/xxl-job-admin`,
    `xxl.job.accessToken=${hasToken ? "…" : ""}`,
    `xxl.job.executor.appname=${app}`,
  ].join("\n");

/** eventCommand sends an event. */
export const eventCommand = (): string =>
  `curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\\n  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`;

/** triggerCommand triggers a job by its id. */
export const triggerCommand = (): string =>
  `curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`;

/** channelFile is a channel for belfry alert-channel apply. */
export const channelFile = `cat > ops.yaml <<'END'
name: ops
kind: webhook
url: https://alerts.example.com/belfry
END
belfry alert-channel apply -f ops.yaml`;

/** calendarCommands create a calendar, and a job that uses it. */
export const calendarCommands = `belfry calendar create holidays --weekday saturday,sunday --date 2026-12-25,2026-12-26
cat > report.yaml <<'END'
group: default
name: report
handler: report
schedule: {kind: cron, expr: 0 9 * * *, calendar: holidays}
END
belfry job apply -f report.yaml`;
