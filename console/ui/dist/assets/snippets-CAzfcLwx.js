const n=`package main

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
`,t=(e,{url:a,tls:r})=>n.replace('"default"',JSON.stringify(e)).replace(/"nats:.*/,o=>o.replace(/"nats:[^"]*"/,JSON.stringify(a))+(r?`
	// With a CA of your own, add to the Config: NATSOptions: []nats.Option{nats.RootCAs("ca.pem")}`:"")),l=(e,a,{url:r,tls:o})=>`BELFRY_TOKEN=${a} belfry executor --group ${e} --nats-url ${r}${o?`
# with a CA of your own, add: --nats-ca ca.pem`:""}`,c=()=>`curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`,s=()=>`curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`,i=`cat > ops.yaml <<'END'
name: ops
kind: webhook
url: https://alerts.example.com/belfry
END
belfry alert-channel apply -f ops.yaml`,p=`belfry calendar create holidays --weekday saturday,sunday --date 2026-12-25,2026-12-26
cat > report.yaml <<'END'
group: default
name: report
handler: report
schedule: {kind: cron, expr: 0 9 * * *, calendar: holidays}
END
belfry job apply -f report.yaml`;export{p as a,i as c,c as e,l as j,t as s,s as t};
