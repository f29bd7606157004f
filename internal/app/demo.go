package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/handlers"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

const demoGroup = "demo"

// addDemo adds an executor of the group demo, and creates jobs in the group if it never had any.
func (s *standalone) addDemo(ctx context.Context, url string) error {
	if _, err := s.groups.EnsureGroup(ctx, demoGroup, "The executor that --demo starts in this process."); err != nil {
		return err
	}
	token, err := s.demoToken(ctx)
	if err != nil {
		return err
	}
	var options []nats.Option
	if s.nats != nil {
		options = append(options, s.nats.InProcess())
	}
	around, err := s.traceHandlers(ctx, "executor")
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Config{
		Around:  around,
		NATSURL: url, Token: token, Group: demoGroup, Instance: "demo-1", SpoolDir: filepath.Join(s.c.DataDir, "spool"),
		DrainTimeout: 5 * time.Second, SettleTimeout: 5 * time.Second, Logger: s.log, Version: s.app.Build.Version, NATSOptions: options,
	})
	if err != nil {
		return err
	}
	handlers.Register(e, handlers.Options{})
	if err := allowScripts(e, s.c.AllowScript, nil); err != nil {
		return err
	}
	if len(s.c.AllowScript) > 0 {
		s.warnOfRoot(ctx)
	}
	s.group.Add(lifecycle.Component{Name: "demo executor", Run: e.Run})
	s.add("demo jobs", func(ctx context.Context) error {
		if err := s.demoJobs(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	return nil
}

// demoToken returns the demo executor's token. The token is stored in the data directory, so that other executors of the group can
// still log in after a restart.
func (s *standalone) demoToken(ctx context.Context) (string, error) {
	file := filepath.Join(s.c.DataDir, "demo.token")
	if kept, err := os.ReadFile(file); err == nil {
		token := strings.TrimSpace(string(kept))
		if group, _, err := s.groups.GroupOfToken(ctx, token); err == nil && group == demoGroup {
			return token, nil
		}
	}
	if err := os.MkdirAll(s.c.DataDir, 0o700); err != nil {
		return "", fmt.Errorf("create --data-dir: %w", err)
	}
	token, err := s.groups.RotateGroupToken(ctx, demoGroup, 0)
	if err != nil {
		return "", err
	}
	return token, os.WriteFile(file, []byte(token+"\n"), 0o600)
}

// demoJobs creates the demo's jobs unless the group has or had jobs.
func (s *standalone) demoJobs(ctx context.Context) error {
	had, err := s.store.GroupHadJobs(ctx, demoGroup)
	if err != nil || had {
		return err
	}
	nightly, err := s.store.CreateJob(ctx, demoJob("send-report", "Runs when nightly-report has succeeded, and gets its output.",
		"echo", "the report is on its way", domain.Schedule{Kind: domain.ScheduleNone}), "demo")
	if err != nil {
		return err
	}
	second := domain.Duration(time.Second)
	for _, spec := range append(s.demoScripts(), []domain.JobSpec{
		demoJob("tick", "Every second, on a grid that does not drift.", "echo", "tick",
			domain.Schedule{Kind: domain.ScheduleFixedRate, Every: second}),
		demoJob("nap", "Takes three seconds, so that it can be watched while it runs.", "sleep", "3s",
			domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/10 * * * * *"}),
		demoJob("rest-and-repeat", "Five seconds after the end of one run comes the next.", "sleep", "500ms",
			domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: 5 * second}),
		withRetries(demoJob("unreachable", "Calls a server that is not there: it retries, and fails.", "http",
			`{"url": "http://127.0.0.1:9/", "timeout": "2s"}`, domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *"})),
		withChild(demoJob("nightly-report", "At two in the morning in Shanghai. Trigger it by hand to see its child run.", "echo",
			"42 orders", domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 2 * * *", TimeZone: "Asia/Shanghai"}), nightly.ID),
	}...) {
		if _, err := s.store.CreateJob(ctx, spec, "demo"); err != nil {
			return err
		}
	}
	return nil
}

// demoScripts returns a script job if the language sh is allowed. By default it is not, because anybody who can log in could then
// run arbitrary commands on this machine.
func (s *standalone) demoScripts() []domain.JobSpec {
	if !slices.Contains(s.c.AllowScript, "sh") {
		return nil
	}
	spec := demoJob("disk-space", "A script, whose versions the console keeps.", "", "/", domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * *"})
	spec.Script = &domain.Script{Language: "sh", Remark: "the first", Code: `df -h "$1"
echo "::output $(df -P "$1" | awk 'NR == 2 { print $5 " used" }')"
`}
	return []domain.JobSpec{spec}
}

func demoJob(name, description, handler, param string, when domain.Schedule) domain.JobSpec {
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Description, spec.Handler, spec.Param, spec.Schedule = demoGroup, name, description, handler, param, when
	spec.Tags = []string{"demo"}
	return spec
}

func withRetries(spec domain.JobSpec) domain.JobSpec {
	spec.Retries = 2
	return spec
}

func withChild(spec domain.JobSpec, child domain.JobID) domain.JobSpec {
	spec.Children = []domain.Child{{JobID: child, On: domain.OnSuccess}}
	return spec
}
