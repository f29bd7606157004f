const r=`package main

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
`,o=(e,a)=>`BELFRY_TOKEN=${a} belfry executor --group ${e} --nats-url nats://${location.hostname}:4222`,n=()=>`curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`,t=()=>`curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`,l=`cat > ops.yaml <<'END'
name: ops
kind: webhook
url: https://alerts.example.com/belfry
END
belfry alert-channel apply -f ops.yaml`,c=`belfry calendar create holidays --weekday saturday,sunday --date 2026-12-25,2026-12-26
cat > report.yaml <<'END'
group: default
name: report
handler: report
schedule: {kind: cron, expr: 0 9 * * *, calendar: holidays}
END
belfry job apply -f report.yaml`;export{c as a,l as c,n as e,o as j,r as s,t};
