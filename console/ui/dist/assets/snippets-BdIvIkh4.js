var e=(e,{url:t,tls:n})=>`package main

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
`.replace(`"default"`,JSON.stringify(e)).replace(/"nats:.*/,e=>e.replace(/"nats:[^"]*"/,JSON.stringify(t))+(n?`
	// With a CA of your own, add to the Config: NATSOptions: []nats.Option{nats.RootCAs("ca.pem")}`:``)),t=(e,t,{url:n,tls:r})=>`BELFRY_TOKEN=${t} belfry executor --group ${e} --nats-url ${n}${r?`
# with a CA of your own, add: --nats-ca ca.pem`:``}`,n=(e,t=[],n=e)=>`belfry group xxl-token ${e} --token-stdin${(t.length?t:[`10.0.0.0/8`]).map(e=>` --allow ${e}`).join(``)}${n===e?``:` --alias ${r(n)}`} < access.token`,r=e=>/^[\w.:-]+$/.test(e)?e:`'${e.replaceAll(`'`,`'\\''`)}'`,i=(e,t=!0)=>[`xxl.job.admin.addresses=http://${location.hostname}:8081/xxl-job-admin`,`xxl.job.accessToken=${t?`…`:``}`,`xxl.job.executor.appname=${e}`].join(`
`),a=()=>`curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\\n  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`,o=()=>`curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`,s=`cat > ops.yaml <<'END'
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
belfry job apply -f report.yaml`;export{n as a,i as c,t as i,s as n,e as o,a as r,o as s,c as t};