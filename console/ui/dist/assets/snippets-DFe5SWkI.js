const t=`package main

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
`,l=(e,{url:a,tls:o})=>t.replace('"default"',JSON.stringify(e)).replace(/"nats:.*/,n=>n.replace(/"nats:[^"]*"/,JSON.stringify(a))+(o?`
	// With a CA of your own, add to the Config: NATSOptions: []nats.Option{nats.RootCAs("ca.pem")}`:"")),s=(e,a,{url:o,tls:n})=>`BELFRY_TOKEN=${a} belfry executor --group ${e} --nats-url ${o}${n?`
# with a CA of your own, add: --nats-ca ca.pem`:""}`,c=(e,a=[],o=e)=>`belfry group xxl-token ${e} --token-stdin${(a.length?a:["10.0.0.0/8"]).map(n=>` --allow ${n}`).join("")}${o===e?"":` --alias ${r(o)}`} < access.token`,r=e=>/^[\w.:-]+$/.test(e)?e:`'${e.replaceAll("'","'\\''")}'`,i=(e,a=!0)=>[`xxl.job.admin.addresses=http://${location.hostname}:8081/xxl-job-admin`,`xxl.job.accessToken=${a?"…":""}`,`xxl.job.executor.appname=${e}`].join(`
`),p=()=>`curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`,d=()=>`curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`,u=`cat > ops.yaml <<'END'
name: ops
kind: webhook
url: https://alerts.example.com/belfry
END
belfry alert-channel apply -f ops.yaml`,m=`belfry calendar create holidays --weekday saturday,sunday --date 2026-12-25,2026-12-26
cat > report.yaml <<'END'
group: default
name: report
handler: report
schedule: {kind: cron, expr: 0 9 * * *, calendar: holidays}
END
belfry job apply -f report.yaml`;export{m as a,u as c,p as e,s as j,c as o,l as s,d as t,i as x};
