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
	e.Handle("hello", func(ctx context.Context, run executor.Run) error {
		run.Log().Info("hello", "param", run.Param())
		return nil
	})
	log.Fatal(e.Run(context.Background()))
}
`,r=(e,o)=>`BELFRY_TOKEN=${o} belfry executor --group ${e} --nats-url nats://${location.hostname}:4222`,t=()=>`curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
  -d '{"order": 7}' ${location.origin}/api/v1/events/orders.created`,a=()=>`curl -X POST -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/jobs/1/trigger`,l=`cat > ops.yaml <<'END'
name: ops
kind: webhook
url: https://alerts.example.com/belfry
END
belfry alert-channel apply -f ops.yaml`;export{l as c,t as e,r as j,n as s,a as t};
