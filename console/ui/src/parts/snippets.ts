/** sdkSnippet is a complete executor. It is not translated, because it is code. */
export const sdkSnippet = `package main

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

/** joinCommand starts the stock agent in a group. */
export const joinCommand = (group: string, token: string): string =>
  `BELFRY_TOKEN=${token} belfry executor --group ${group} --nats-url nats://${location.hostname}:4222`;

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
