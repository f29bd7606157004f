package crontab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// one parses a user crontab of the agent's own user.
func one(t *testing.T, text string) Result {
	t.Helper()
	return Parse("mine", []byte(text), Options{Group: "default"})
}

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		name, path, text string
		expr, param      string
		zone             string
	}{
		{name: "plain", text: "5 4 * * 1-5 echo hello  world \n", expr: "5 4 * * 1-5", param: `["sh","-c","echo hello  world "]`},
		{name: "tabs and indentation", text: "\t5\t4  *\t* sun\techo\n", expr: "5 4 * * sun", param: `["sh","-c","echo"]`},
		{name: "descriptor", text: "@daily echo\n", expr: "@daily", param: `["sh","-c","echo"]`},
		{name: "descriptor in capitals", text: "@Hourly echo\n", expr: "@hourly", param: `["sh","-c","echo"]`},
		{name: "names and ranges", text: "*/5 0-6/2 1,15 jan-mar mon,wed echo\n", expr: "*/5 0-6/2 1,15 jan-mar mon,wed", param: `["sh","-c","echo"]`},
		{name: "day 7", text: "0 0 * * 7 echo\n", expr: "0 0 * * 7", param: `["sh","-c","echo"]`},
		{name: "system", path: "/etc/cron.d/x", text: "1 2 3 4 5 root a && b > c\n", expr: "1 2 3 4 5", param: `["sh","-c","a && b > c"]`},
		{name: "system elsewhere", path: "unpacked/etc/crontab", text: "@weekly root a\n", expr: "@weekly", param: `["sh","-c","a"]`},
		{name: "escaped percent", text: `* * * * * date +\%F\\ \x` + "\n", expr: "* * * * *", param: `["sh","-c","date +%F\\\\ \\x"]`},
		{name: "environment", text: "A='x y '\nB = \"q\" \nC= r s \nA=2\n* * * * * echo\n", expr: "* * * * *",
			param: `{"argv":["sh","-c","echo"],"env":{"A":"2","B":"q","C":"r s"}}`},
		{name: "shell", text: "SHELL=/bin/bash\n* * * * * echo\n", expr: "* * * * *",
			param: `{"argv":["/bin/bash","-c","echo"],"env":{"SHELL":"/bin/bash"}}`},
		{name: "home", text: "HOME=/srv\n* * * * * echo\n", expr: "* * * * *",
			param: `{"argv":["sh","-c","echo"],"env":{"HOME":"/srv"},"dir":"/srv"}`},
		{name: "zone", text: "CRON_TZ=Asia/Tokyo\nTZ=Europe/Paris\n0 3 * * * echo\n", expr: "0 3 * * *", zone: "Asia/Tokyo",
			param: `{"argv":["sh","-c","echo"],"env":{"CRON_TZ":"Asia/Tokyo","TZ":"Europe/Paris"}}`},
		{name: "empty mailto", text: "MAILTO=\"\"\n0 3 * * * echo\n", expr: "0 3 * * *",
			param: `{"argv":["sh","-c","echo"],"env":{"MAILTO":""}}`},
		{name: "assignment in the command", text: "0 3 * * * A=1 echo\n", expr: "0 3 * * *", param: `["sh","-c","A=1 echo"]`},
		{name: "own crontab of the agent's user", path: "/var/spool/cron/crontabs/root", text: "0 3 * * * echo\n", expr: "0 3 * * *", param: `["sh","-c","echo"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == "" {
				c.path = "mine"
			}
			r := Parse(c.path, []byte(c.text), Options{Group: "default"})
			if len(r.Problems) > 0 || len(r.Jobs) != 1 {
				t.Fatalf("got %+v", r)
			}
			s := r.Jobs[0].Spec
			if s.Schedule.Expr != c.expr || s.Schedule.TimeZone != c.zone || s.Param != c.param {
				t.Errorf("got expr %q, zone %q, param %s\nwant %q, %q, %s", s.Schedule.Expr, s.Schedule.TimeZone, s.Param, c.expr, c.zone, c.param)
			}
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
			if s.Block != domain.BlockParallel || s.Misfire != domain.MisfireSkip || !reflect.DeepEqual(s.Tags, []string{Tag}) {
				t.Errorf("overlap, misfire or tags are not cron's: %+v", s)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	const system = "/etc/cron.d/x"
	for _, c := range []struct {
		name, path, text string
		reason           string // a part of it
		line             int
		kept             bool
		jobs             int
	}{
		{name: "foreign user", path: system, text: "# c\n* * * * * www-data echo\n", line: 2, reason: "runs as user www-data"},
		{name: "foreign crontab", path: "/var/spool/cron/crontabs/alice", text: "* * * * * echo\n", line: 1, reason: "runs as user alice"},
		{name: "foreign crontab of cronie", path: "/var/spool/cron/alice", text: "* * * * * echo\n", line: 1, reason: "runs as user alice"},
		{name: "reboot", text: "@reboot echo\n", line: 1, reason: "@reboot has no fire time"},
		{name: "unknown descriptor", text: "@every 5m echo\n", line: 1, reason: "@every is not known"},
		{name: "no command", text: "* * * * *\n", line: 1, reason: "has no command"},
		{name: "no user", path: system, text: "* * * * * /usr/bin/job\n", line: 1, reason: "a user and a command"},
		{name: "too few fields", text: "* * echo\n", line: 1, reason: "five time fields"},
		{name: "empty name", text: "=x\n", line: 1, reason: "five time fields"},
		{name: "unclosed quote", text: "A='x\n", line: 1, reason: "five time fields"},
		{name: "text after a quote", text: "A='x' y\n", line: 1, reason: "five time fields"},
		{name: "minute 60", text: "60 * * * * echo\n", line: 1, reason: "60"},
		{name: "step 0", text: "*/0 * * * * echo\n", line: 1, reason: "0"},
		{name: "unknown zone", text: "CRON_TZ=Mars/Base\n* * * * * echo\n", line: 2, reason: "time_zone"},
		{name: "NUL", text: "* * * * * echo \x00\n", line: 1, reason: "UTF-8"},
		{name: "not UTF-8", text: "# \xff\n", line: 1, reason: "UTF-8"},
		{name: "mail", text: "MAILTO=root\n* * * * * echo\n", line: 1, reason: "nothing is mailed", jobs: 1},
		{name: "random delay", text: "RANDOM_DELAY=5\n* * * * * echo\n", line: 1, reason: "jitter", jobs: 1},
		{name: "LOGNAME", text: "LOGNAME=x\n* * * * * echo\n", line: 1, reason: "LOGNAME", jobs: 1},
		{name: "file name", path: "/etc/cron.d/x.dpkg-old", text: "* * * * * root echo\n", line: 1, reason: "cron ignores this file"},
		{name: "anacrontab", path: "/etc/anacrontab", text: "1 5 cron.daily run-parts /etc/cron.daily\n", line: 1, reason: "anacron"},
		{name: "script", path: "/etc/cron.daily/x", text: "#!/bin/sh\nexit 0\n", line: 2, reason: "script"},
		{name: "CR LF", text: "# a\r\n* * * * * echo\r\n", line: 1, reason: "CR LF", kept: true, jobs: 1},
		{name: "no final newline", text: "* * * * * echo", line: 1, reason: "no newline", kept: true, jobs: 1},
		{name: "silent", text: "-* * * * * echo\n", line: 1, reason: "do not log", kept: true, jobs: 1},
		{name: "random", text: "0~59 ~ * * * echo\n", line: 1, reason: "chooses the random time once", kept: true, jobs: 1},
		{name: "random the wrong way round", text: "9~3 * * * * echo\n", line: 1, reason: "minute"},
		{name: "standard input", text: "* * * * * cat%a%b\n", line: 1, reason: "standard input", kept: true, jobs: 1},
		{name: "too long", text: "* * * * * " + strings.Repeat("x", domain.MaxParamBytes) + "\n", line: 1, reason: "param"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == "" {
				c.path = "mine"
			}
			r := Parse(c.path, []byte(c.text), Options{Group: "default"})
			if len(r.Problems) != 1 || len(r.Jobs) != c.jobs {
				t.Fatalf("got %d jobs, problems %+v", len(r.Jobs), r.Problems)
			}
			p := r.Problems[0]
			if p.Line != c.line || p.Kept != c.kept || !strings.Contains(p.Reason, c.reason) || p.File != c.path {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestAgentUser(t *testing.T) {
	text := []byte("* * * * * root a\n* * * * * alice b\n")
	r := Parse("x", text, Options{Kind: System, AgentUser: "alice"})
	if len(r.Jobs) != 1 || r.Jobs[0].Line != 2 || len(r.Problems) != 1 {
		t.Errorf("got %+v", r)
	}
	if r := Parse("/etc/cron.d/x", []byte("* * * * * root a\n"), Options{Kind: User}); r.Jobs[0].Spec.Param != `["sh","-c","root a"]` {
		t.Errorf("the kind did not win over the path: %+v", r)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		in, command, stdin string
		has                bool
	}{
		{`echo`, `echo`, "", false},
		{`echo \%`, `echo %`, "", false},
		{`a\\%b`, `a\\`, "b\n", true}, // the second backslash is escaped, the percent is not
		{`a\`, `a\`, "", false},
		{`cat%one%two`, "cat", "one\ntwo\n", true},
		{`cat%one%`, "cat", "one\n", true},
		{`cat%`, "cat", "", true},
		{`cat%50\% \n \\`, "cat", "50% \\n \\\\\n", true},
	} {
		command, stdin, has := splitPercent(c.in)
		if command != c.command || stdin != c.stdin || has != c.has {
			t.Errorf("%q: got %q, %q, %v", c.in, command, stdin, has)
		}
	}
}

func TestNamesAreStable(t *testing.T) {
	names := func(text string) map[string]string {
		got := make(map[string]string) // param → name
		for _, j := range one(t, text).Jobs {
			got[j.Spec.Param+j.Spec.Schedule.Expr] = j.Spec.Name
		}
		return got
	}
	before := names("0 1 * * * backup /srv\n0 2 * * * report\n")
	after := names("# moved\n\n0 2 * * * report\n0 1 * * * backup /srv\n0 3 * * * other\n")
	for key, name := range before {
		if after[key] != name {
			t.Errorf("%s was named %q, is named %q", key, name, after[key])
		}
	}
	twice := one(t, "0 1 * * * a\n0 2 * * * a\n0 3 * * * a!\n")
	seen := make(map[string]bool)
	for _, j := range twice.Jobs {
		seen[j.Spec.Name] = true
	}
	if len(seen) != 3 {
		t.Errorf("names are not unique: %v", seen)
	}
	if got := one(t, "0 1 * * * [ -x /usr/bin/x ] && /usr/bin/x\n").Jobs[0].Spec.Name; got != "mine-x-usr-bin-x-usr-bin-x-aec233" {
		t.Errorf("the name is %q; changing the rule duplicates the jobs of whoever imported before", got)
	}
}

func TestRandomIsInRangeAndStable(t *testing.T) {
	for _, seed := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		first, drawn := drawRandom("10~20 ~3 * * 1,~", seed)
		second, _ := drawRandom("10~20 ~3 * * 1,~", seed)
		if !drawn || first != second {
			t.Fatalf("%q and %q", first, second)
		}
		f := strings.Fields(first)
		if f[0] < "10" || f[0] > "20" || f[1] < "0" || f[1] > "3" || strings.Contains(first, "~") {
			t.Errorf("%q is out of range", first)
		}
	}
}

// TestFixtures reads whole files and compares the verdict on each line.
func TestFixtures(t *testing.T) {
	for _, c := range []struct {
		file  string
		lines string // one letter a line: b, c, e(nvironment), j(ob), r(efused)
		notes []int  // lines with a problem, in order
	}{
		{"etc/crontab", "cceebcccccccjjjrrb", []int{16, 17}},
		{"etc/cron.d/collector", "ceejjr", []int{3, 6}},
		{"etc/cron.d/old.bak", "cr", []int{2}},
		{"user", "ebjjjjr", []int{4, 5, 7}},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := filepath.Join("testdata", filepath.FromSlash(c.file))
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r := Parse(path, data, Options{Group: "default"})
			letters := map[LineKind]string{Blank: "b", Comment: "c", Env: "e", Entry: "j", Refused: "r"}
			var lines string
			for _, k := range r.Lines {
				lines += letters[k]
			}
			var notes []int
			for _, p := range r.Problems {
				notes = append(notes, p.Line)
			}
			if lines != c.lines || !reflect.DeepEqual(notes, c.notes) {
				t.Errorf("lines %s, want %s; problems at %v, want %v\n%+v", lines, c.lines, notes, c.notes, r.Problems)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "\n", "* * * * * echo\n", "A=1\n@daily x", "\"q\" = 'v'\n-5~9 * * * * root a%b\\%c\r\n", "@reboot x\nMAILTO=a\n= = =\n\xff\x00",
		"0 0 31 2 * x\n", "* * * * * \\", "'",
	} {
		f.Add("/etc/cron.d/x", s)
		f.Add("mine", s)
	}
	f.Fuzz(func(t *testing.T, path, text string) {
		r := Parse(path, []byte(text), Options{Group: "default"})
		lines := strings.Count(text, "\n")
		if !strings.HasSuffix(text, "\n") && strings.TrimPrefix(text, "\ufeff") != "" {
			lines++
		}
		if len(r.Lines) != lines {
			t.Fatalf("%d lines, %d accounted for", lines, len(r.Lines))
		}
		jobs, refused := make(map[int]bool), make(map[int]bool)
		names := make(map[string]bool)
		for _, j := range r.Jobs {
			if jobs[j.Line] || names[j.Spec.Name] {
				t.Fatalf("line %d or name %q twice", j.Line, j.Spec.Name)
			}
			jobs[j.Line], names[j.Spec.Name] = true, true
			if err := j.Spec.Validate(); err != nil {
				t.Fatal(err)
			}
			if !json.Valid([]byte(j.Spec.Param)) {
				t.Fatalf("%s is not JSON", j.Spec.Param)
			}
		}
		for _, p := range r.Problems {
			if p.Line < 1 || p.Line > lines || p.Reason == "" {
				t.Fatalf("%+v", p)
			}
			if !p.Kept {
				refused[p.Line] = true
			}
		}
		for i, kind := range r.Lines {
			switch kind {
			case Blank, Comment, Env:
				if jobs[i+1] {
					t.Fatalf("line %d is %s and a job", i+1, kind)
				}
			case Entry:
				if !jobs[i+1] {
					t.Fatalf("line %d became no job", i+1)
				}
			case Refused:
				if !refused[i+1] || jobs[i+1] {
					t.Fatalf("line %d was refused without a word", i+1)
				}
			default:
				t.Fatalf("line %d is %q", i+1, kind)
			}
		}
	})
}
