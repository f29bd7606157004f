// Command executor is an executor of XXL-JOB with the handlers that tests need. Arguments: admin address, app name, access token, port. It ends
// when its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	xxl "github.com/xxl-job/xxl-job-executor-go"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	e := xxl.NewExecutor(xxl.ServerAddr(os.Args[1]), xxl.RegistryKey(os.Args[2]), xxl.AccessToken(os.Args[3]), xxl.ExecutorIp("127.0.0.1"), xxl.ExecutorPort(os.Args[4]))
	e.Init()
	e.RegTask("demo", func(context.Context, *xxl.RunReq) string { return "done" })
	e.RegTask("echo", func(_ context.Context, r *xxl.RunReq) string {
		return fmt.Sprintf("%s %d/%d", r.ExecutorParams, r.BroadcastIndex, r.BroadcastTotal)
	})
	e.RegTask("fail", func(context.Context, *xxl.RunReq) string { panic("no such month") })
	e.RegTask("sleep", func(ctx context.Context, r *xxl.RunReq) string {
		select {
		case <-time.After(time.Duration(number(r.ExecutorParams)) * time.Second):
			return "slept"
		case <-ctx.Done():
			return "cancelled"
		}
	})
	e.RegTask("stubborn", func(_ context.Context, r *xxl.RunReq) string {
		seconds, file, _ := strings.Cut(r.ExecutorParams, " ")
		time.Sleep(time.Duration(number(seconds)) * time.Second)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		fmt.Fprintln(f, "done")
		return ""
	})
	e.RegTask("lines", func(_ context.Context, r *xxl.RunReq) string { // it has no log
		_, seconds, _ := strings.Cut(r.ExecutorParams, " ")
		time.Sleep(time.Duration(number(seconds)) * time.Second)
		return ""
	})
	if err := e.Run(); err != nil {
		panic(err)
	}
}

func number(s string) (n int) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		panic(err)
	}
	return n
}
