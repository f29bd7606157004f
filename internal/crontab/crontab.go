package crontab

import (
	"errors"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Tag is the tag of every imported job.
const Tag = "crontab"

// DefaultUser is the user that agents are assumed to run as if Options names none.
const DefaultUser = "root"

// FileKind determines whether entries of a crontab name a user.
type FileKind string

// The kinds of crontab. Auto decides by the path.
const (
	Auto   FileKind = ""
	System FileKind = "system"
	User   FileKind = "user"
)

// Options holds the settings for the jobs that do not come from the file.
type Options struct {
	Group     string   // the group of every job
	AgentUser string   // the user that the group's agents run as; DefaultUser if empty
	TimeZone  string   // for schedules without CRON_TZ; the server's if empty
	Kind      FileKind // Auto where it is empty
}

// Job is one imported entry.
type Job struct {
	Spec domain.JobSpec
	Line int // counted from 1
}

// Problem is a part of the file that is not imported, or imported with a change.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // counted from 1
	Text   string `json:"text"`
	Reason string `json:"reason"`
	Kept   bool   `json:"kept"` // imported, but changed as Reason says
}

// LineKind is how a line was interpreted.
type LineKind string

// The kinds of line. A Refused line has a Problem with Kept false.
const (
	Blank   LineKind = "blank"
	Comment LineKind = "comment"
	Env     LineKind = "env"
	Entry   LineKind = "entry" // became a job
	Refused LineKind = "refused"
)

// Result is the result of importing a file.
type Result struct {
	Jobs     []Job
	Problems []Problem
	Lines    []LineKind // the kind of each line, in order
}

// Parse parses the crontab in data. The path is used in problems and job names and determines the crontab's kind; it is
// not opened. Parse never fails as a whole: it reports what it cannot import as Problems.
func Parse(path string, data []byte, o Options) Result {
	if o.AgentUser == "" {
		o.AgentUser = DefaultUser
	}
	p := parser{path: path, options: o, system: o.Kind == System, owner: owner(path), ignored: ignored(path)}
	if o.Kind == Auto {
		p.system = isSystem(path)
	}
	p.parse(string(data))
	return p.result
}

type parser struct {
	path    string
	options Options
	system  bool
	owner   string // the user whose crontab this is, or "" if the path does not determine it
	ignored string // why cron would not read this file, or ""

	line   int
	text   string
	env    []variable
	seen   map[string]int // how many entries have had the same name
	result Result
}

type variable struct{ name, value string }

func (p *parser) parse(data string) {
	p.seen = make(map[string]int)
	lines := strings.Split(strings.TrimPrefix(data, "\ufeff"), "\n")
	complete := lines[len(lines)-1] == ""
	if complete {
		lines = lines[:len(lines)-1]
	}
	carriageReturn := false
	for i, text := range lines {
		p.line = i + 1
		p.text = strings.TrimSuffix(text, "\r")
		if p.text != text && !carriageReturn {
			carriageReturn = true
			p.changed("lines end in CR LF, and cron makes the CR part of the command; the import drops it from all lines")
		}
		kind := p.parseLine(strings.TrimLeft(p.text, " \t"))
		if i == len(lines)-1 && !complete && kind == Entry {
			p.changed("the last line has no newline at its end; Debian's cron ignores such a file")
		}
		p.result.Lines = append(p.result.Lines, kind)
	}
}

func (p *parser) parseLine(s string) LineKind {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return p.refuse("is not text in UTF-8")
	case s == "":
		return Blank
	case s[0] == '#':
		return Comment
	}
	if name, value, ok := parseEnv(s); ok {
		p.setEnv(name, value)
		return Env
	}
	if p.ignored != "" {
		return p.refuse(p.ignored)
	}
	return p.parseEntry(s)
}

// refuse records that the current line is not imported.
func (p *parser) refuse(reason string) LineKind {
	p.note(reason, false)
	return Refused
}

// changed records that the current line is imported with a change.
func (p *parser) changed(reason string) { p.note(reason, true) }

func (p *parser) note(reason string, kept bool) {
	text := strings.ToValidUTF8(strings.ReplaceAll(p.text, "\x00", "\ufffd"), "\ufffd")
	p.result.Problems = append(p.result.Problems, Problem{p.path, p.line, text, reason, kept})
}

// setEnv adds an environment line to the environment of the entries below it.
func (p *parser) setEnv(name, value string) {
	switch name {
	case "MAILTO", "MAILFROM":
		// An empty MAILTO turns off cron's mail. Belfry sends no mail either.
		if value != "" {
			p.note("nothing is mailed: output goes to the run's log; give the job an alert channel to hear of failures", false)
		}
	case "LOGNAME", "USER":
		p.note("cron does not let a crontab change "+name+", so the command does not get it", false)
		return
	case "RANDOM_DELAY":
		p.note("the random delay is not imported; set jitter in the job's schedule", false)
	}
	for i := range p.env {
		if p.env[i].name == name {
			p.env[i].value = value
			return
		}
	}
	p.env = append(p.env, variable{name, value})
}

func (p *parser) lookup(name string) string {
	for _, v := range p.env {
		if v.name == name {
			return v.value
		}
	}
	return ""
}

// isSystem reports whether entries of the crontab at path name a user.
func isSystem(path string) bool {
	path = filepath.ToSlash(filepath.Clean(path))
	dir, base := filepath.Split(path)
	parent := filepath.Base(dir)
	return strings.HasPrefix(path, "/etc/") || parent == "cron.d" || base == "crontab" && parent == "etc"
}

// owner returns the user who owns the crontab at path, or "" if the path does not determine it.
func owner(path string) string {
	path = filepath.ToSlash(filepath.Clean(path))
	dir, base := filepath.Split(path)
	if filepath.Base(dir) == "crontabs" || strings.HasSuffix(dir, "/var/spool/cron/") {
		return base
	}
	return ""
}

// ignored returns why cron does not read the file at path as a crontab, or "".
func ignored(path string) string {
	path = filepath.ToSlash(filepath.Clean(path))
	dir, base := filepath.Split(path)
	switch parent := filepath.Base(dir); {
	case base == "anacrontab":
		return "this is anacron's file, whose lines are not cron entries"
	case parent == "cron.hourly" || parent == "cron.daily" || parent == "cron.weekly" || parent == "cron.monthly":
		return "this is a script for run-parts, not a crontab"
	case parent == "cron.d" && strings.ContainsFunc(base, notInFileName):
		return "cron ignores this file, because names in cron.d may contain only letters, digits, _ and -"
	}
	return ""
}

func notInFileName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
}

// compile returns why the schedule compiler refuses s, or "".
func compile(s domain.Schedule) string {
	_, err := schedule.Compile(s, schedule.Options{})
	return reason(err)
}

// reason joins the field errors of err for a report that shows the line itself.
func reason(err error) string {
	if err == nil {
		return ""
	}
	var e *domain.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		return err.Error()
	}
	var parts []string
	for _, f := range e.Fields {
		parts = append(parts, strings.TrimPrefix(f.Location, "schedule.")+": "+f.Message)
	}
	return strings.Join(parts, "; ")
}
