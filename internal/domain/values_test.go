package domain

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		`"90s"`: 90 * time.Second, `"1h30m"`: 90 * time.Minute, `""`: 0, `"0s"`: 0, `"1.5s"`: 1500 * time.Millisecond, `"-1s"`: -time.Second,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(in), &d); err != nil || d.Std() != want {
			t.Errorf("%s: %s, %v", in, d.Std(), err)
		}
	}
	for _, bad := range []string{`"90"`, `90`, `"1d"`, `{}`, `"forever"`, `true`} {
		var d Duration
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s is read as %s", bad, d.Std())
		}
	}
	if out, err := json.Marshal(Duration(90 * time.Second)); err != nil || string(out) != `"1m30s"` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestInstant(t *testing.T) {
	for in, want := range map[string]string{
		`"2026-03-29T01:30:00Z"`:                `"2026-03-29T01:30:00.000Z"`,
		`"2026-03-29T03:30:00.123456789+02:00"`: `"2026-03-29T01:30:00.123Z"`,
		`"2026-03-29T01:30:00.9999Z"`:           `"2026-03-29T01:30:00.999Z"`,
	} {
		var i Instant
		if err := json.Unmarshal([]byte(in), &i); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if out, err := json.Marshal(i); err != nil || string(out) != want {
			t.Errorf("%s: %s, %v; want %s", in, out, err, want)
		}
	}
	for _, bad := range []string{`""`, `"now"`, `"2026-03-29"`, `1774747800`, `"2026-03-29 01:30:00"`, `"2026-02-30T00:00:00Z"`, `{}`,
		`"9999-12-31T23:59:59-01:00"`, `"0000-01-01T00:00:00+01:00"`} {
		var i Instant
		if err := json.Unmarshal([]byte(bad), &i); err == nil {
			t.Errorf("%s is read as %s", bad, i)
		}
	}
	if AtPtr(time.Time{}) != nil || !AtPtr(instant).Equal(instant.Truncate(time.Millisecond)) {
		t.Error("AtPtr")
	}
}

func valid() JobSpec {
	s := DefaultJobSpec()
	s.Group, s.Name, s.Handler = "g", "n", "echo"
	return s
}

func TestValidateNamesTheField(t *testing.T) {
	s := valid()
	s.Children = []Child{{1, OnFailure}, {1, OnSuccess}}
	if err := s.Validate(); err != nil {
		t.Fatalf("the valid job: %v", err)
	}
	long := func(n int) string { return strings.Repeat("ä", n) }
	tests := map[string]struct {
		edit  func(*JobSpec)
		field string
	}{
		"no group":             {func(s *JobSpec) { s.Group = "" }, "group"},
		"group with a dot":     {func(s *JobSpec) { s.Group = "a.b" }, "group"},
		"group with a star":    {func(s *JobSpec) { s.Group = "*" }, "group"},
		"group with a newline": {func(s *JobSpec) { s.Group = "a\n" }, "group"},
		"group too long":       {func(s *JobSpec) { s.Group = strings.Repeat("a", 64) }, "group"},
		"no name":              {func(s *JobSpec) { s.Name = "" }, "name"},
		"name too long":        {func(s *JobSpec) { s.Name = long(129) }, "name"},
		"name with NUL":        {func(s *JobSpec) { s.Name = "a\x00" }, "name"},
		"name not UTF-8":       {func(s *JobSpec) { s.Name = "\xff" }, "name"},
		"description too long": {func(s *JobSpec) { s.Description = long(1025) }, "description"},
		"author too long":      {func(s *JobSpec) { s.Author = long(65) }, "author"},
		"runbook too long":     {func(s *JobSpec) { s.RunbookURL = "https://a.test/" + long(1024) }, "runbook_url"},
		"runbook is a path":    {func(s *JobSpec) { s.RunbookURL = "/wiki/billing" }, "runbook_url"},
		"runbook runs code":    {func(s *JobSpec) { s.RunbookURL = "javascript://a.test/%0aalert(1)" }, "runbook_url"},
		"too many tags":        {func(s *JobSpec) { s.Tags = slices.Repeat([]string{"t"}, 17) }, "tags"},
		"an empty tag":         {func(s *JobSpec) { s.Tags = []string{"a", ""} }, "tags[1]"},
		"param too long":       {func(s *JobSpec) { s.Param = strings.Repeat("a", MaxParamBytes+1) }, "param"},
		"param with NUL":       {func(s *JobSpec) { s.Param = "\x00" }, "param"},
		"no handler":           {func(s *JobSpec) { s.Handler = "" }, "handler"},
		"handler and script":   {func(s *JobSpec) { s.Script = &Script{Language: "sh", Code: "true"} }, "script"},
		"unknown language":     {func(s *JobSpec) { s.Handler, s.Script = "", &Script{Language: "cobol", Code: "x"} }, "script.language"},
		"empty script":         {func(s *JobSpec) { s.Handler, s.Script = "", &Script{Language: "sh"} }, "script.code"},
		"script with NUL":      {func(s *JobSpec) { s.Handler, s.Script = "", &Script{Language: "sh", Code: "\x00"} }, "script.code"},
		"remark with NUL":      {func(s *JobSpec) { s.Handler, s.Script = "", &Script{Language: "sh", Code: "x", Remark: "\x00"} }, "script.remark"},
		"channel with NUL":     {func(s *JobSpec) { s.Alert.Channels = []string{"\x00"} }, "alert.channels[0]"},
		"script too long":      {func(s *JobSpec) { s.Handler, s.Script = "", &Script{Language: "sh", Code: long(200_000)} }, "script.code"},
		"misfire":              {func(s *JobSpec) { s.Misfire = "odd" }, "misfire"},
		"route":                {func(s *JobSpec) { s.Route = "odd" }, "route"},
		"block":                {func(s *JobSpec) { s.Block = "odd" }, "block"},
		"block_scope":          {func(s *JobSpec) { s.BlockScope = "odd" }, "block_scope"},
		"shards":               {func(s *JobSpec) { s.Shards = -1 }, "shards"},
		"retries":              {func(s *JobSpec) { s.Retries = 101 }, "retries"},
		"timeout":              {func(s *JobSpec) { s.Timeout = -1 }, "timeout"},
		"start_deadline":       {func(s *JobSpec) { s.StartDeadline = Duration(time.Millisecond) }, "start_deadline"},
		"retention":            {func(s *JobSpec) { s.Retention = -1 }, "retention"},
		"backoff initial":      {func(s *JobSpec) { s.RetryBackoff.Initial = -1 }, "retry_backoff.initial"},
		"backoff max":          {func(s *JobSpec) { s.RetryBackoff.Max = math.MaxInt64 }, "retry_backoff.max"},
		"backoff max below":    {func(s *JobSpec) { s.RetryBackoff.Initial = Duration(10 * time.Minute) }, "retry_backoff.max"},
		"backoff factor":       {func(s *JobSpec) { s.RetryBackoff.Factor = math.NaN() }, "retry_backoff.factor"},
		"child without id":     {func(s *JobSpec) { s.Children = []Child{{On: OnAlways}} }, "children[0].job_id"},
		"child twice":          {func(s *JobSpec) { s.Children = []Child{{1, OnFailure}, {2, OnSuccess}, {1, OnAlways}} }, "children[2].job_id"},
		"child on odd":         {func(s *JobSpec) { s.Children = []Child{{JobID: 1, On: "odd"}} }, "children[0].on"},
		"too many children":    {func(s *JobSpec) { s.Children = manyChildren(MaxChildren + 1) }, "children"},
		"alert on odd":         {func(s *JobSpec) { s.Alert.On = []AlertKind{"odd"} }, "alert.on[0]"},
	}
	var all JobSpec
	for name, tt := range tests {
		s := valid()
		tt.edit(&s)
		var e *Error
		if err := s.Validate(); !errors.As(err, &e) || e.Code != Invalid || len(e.Fields) != 1 || e.Fields[0].Location != tt.field || e.Fields[0].Message == "" {
			t.Errorf("%s: %v; want the one field %s", name, err, tt.field)
		}
	}
	all.Tags, all.Retries, all.Misfire = []string{""}, -1, "odd"
	var e *Error
	if err := all.Validate(); !errors.As(err, &e) || len(e.Fields) < 8 {
		t.Errorf("a job with many faults: %v", err)
	}
}

func manyChildren(n int) (children []Child) {
	for i := range n {
		children = append(children, Child{JobID(i + 1), OnAlways})
	}
	return children
}

func TestNormalizeFillsDefaults(t *testing.T) {
	s := JobSpec{Group: "g", Name: "n", Handler: "echo", Enabled: true, Children: []Child{{JobID: 1}}}
	s.StartDeadline, s.RetryBackoff = DefaultJobSpec().StartDeadline, DefaultJobSpec().RetryBackoff
	s.Schedule.Kind = ScheduleCron
	s.Normalize()
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.Schedule.Dialect != DialectStandard || s.Children[0].On != OnSuccess {
		t.Errorf("%+v", s)
	}
	a, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again := s
	again.Normalize()
	if b, err := json.Marshal(again); err != nil || string(a) != string(b) {
		t.Errorf("normalized twice: %s, %s, %v", a, b, err)
	}
	var back JobSpec
	if err := json.Unmarshal(a, &back); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(back); err != nil || string(a) != string(b) {
		t.Errorf("read back: %s, %v; want %s", b, err, a)
	}
}

func TestValidGroupName(t *testing.T) {
	for name, want := range map[string]bool{
		"g": true, "a-b_c9": true, "9": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "_a": false, "A": false, "ä": false, "a b": false, "a.b": false, ">": false, "a\n": false, "a\x00": false,
	} {
		if ValidGroupName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestTargets(t *testing.T) {
	s := valid()
	if s.Target() != "echo" {
		t.Error(s.Target())
	}
	s.Handler, s.Script = "", &Script{Language: "sh"}
	if s.Target() != "script:sh" {
		t.Error(s.Target())
	}
}

func TestDurationIsShort(t *testing.T) {
	for text, want := range map[string]string{
		"10m": "10m", "90s": "1m30s", "1h30m": "1h30m", "24h": "24h", "0s": "0s", "100s": "1m40s", "10s": "10s", "1h0m5s": "1h0m5s", "20m0.5s": "20m0.5s",
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%s is written as %s, want %s; %v", text, d, want, err)
		}
	}
}
