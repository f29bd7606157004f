package protocol

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// stubVariable makes the test binary an executor that takes every run. It prints its URL, and ends with its standard input.
const stubVariable = "BELFRY_TEST_STUB"

func stub() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"code":200,"msg":null,"content":null}`)
		}))
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkRun measures the CPU time of this process for a call that starts a run. The executor is another process.
func BenchmarkRun(b *testing.B) {
	command := exec.CommandContext(b.Context(), os.Args[0])
	command.Env = append(os.Environ(), stubVariable+"=1")
	stdin, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = command.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address, err := ParseAddress(strings.TrimSpace(url))
	if err != nil {
		b.Fatal(err)
	}
	client := NewClient(Config{Dial: new(net.Dialer).DialContext})
	b.Cleanup(client.Close)
	e := client.Executor(address, "app", "secret")
	var id atomic.Int64
	before := ownCPU(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			answer := e.Run(ctx, Run{JobID: 1, Handler: "demo", Block: BlockSerial, LogID: id.Add(1), LogTimeMS: 1_700_000_000_000, GlueType: GlueBean, ShardTotal: 1}, func() bool { return true })
			cancel()
			if answer.Outcome != Taken {
				b.Error(answer)
			}
		}
	})
	b.ReportMetric(float64((ownCPU(b)-before).Nanoseconds())/1000/float64(b.N), "cpu-µs/call")
}

// ownCPU returns the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
