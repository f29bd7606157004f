package crontab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// descriptors are the names that stand for a schedule. @reboot is missing, because it stands for an event, not a time.
var descriptors = map[string]bool{
	"@yearly": true, "@annually": true, "@monthly": true, "@weekly": true, "@daily": true, "@midnight": true, "@hourly": true,
}

// parseEntry parses a line that is not an environment line: a schedule, in a system crontab a user, and a command.
func (p *parser) parseEntry(s string) LineKind {
	silent := strings.HasPrefix(s, "-")
	rest := strings.TrimPrefix(s, "-")
	when, rest := cutFields(rest, 1)
	switch {
	case strings.HasPrefix(when, "@"):
		when = strings.ToLower(when)
		if when == "@reboot" {
			return p.refuse("@reboot has no fire time; start the command from the machine's init system")
		}
		if !descriptors[when] {
			return p.refuse(when + " is not known to cron; it knows @reboot, @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly")
		}
	default:
		var more string
		more, rest = cutFields(rest, 4)
		if when += " " + more; len(strings.Fields(when)) < 5 {
			return p.refuse("is neither an environment line nor an entry: an entry has five time fields and a command")
		}
	}
	if p.system {
		var user string
		user, rest = cutFields(rest, 1)
		if user != "" && rest != "" && user != p.options.AgentUser {
			return p.refuse(foreign(user, p.options.AgentUser))
		}
	} else if p.owner != "" && p.owner != p.options.AgentUser {
		return p.refuse(foreign(p.owner, p.options.AgentUser))
	}
	command, stdin, hasStdin := splitPercent(rest)
	if strings.TrimSpace(command) == "" {
		if p.system {
			return p.refuse("has no command: an entry of a system crontab is five time fields, a user and a command")
		}
		return p.refuse("has no command")
	}
	kind := p.addJob(when, command, stdin, hasStdin)
	if kind == Entry && silent {
		p.changed("the leading - (do not log) has no effect, because Belfry records every run")
	}
	return kind
}

func foreign(user, agent string) string {
	return fmt.Sprintf("runs as user %s, but the agent runs as %s; import it with --user %s into a group whose agents run as that user", user, agent, user)
}

// addJob adds the job of an entry, unless the entry's schedule or the job is refused.
func (p *parser) addJob(when, command, stdin string, hasStdin bool) LineKind {
	spec := domain.DefaultJobSpec()
	spec.Group = p.options.Group
	name := p.name(command, stdin, hasStdin)
	expr, drawn := drawRandom(when, name)
	zone := p.lookup("CRON_TZ")
	if zone == "" {
		zone = p.options.TimeZone
	}
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectStandard, Expr: expr, TimeZone: zone}
	if why := compile(spec.Schedule); why != "" {
		return p.refuse(why)
	}
	spec.Name = name
	if n := p.seen[name]; n > 0 {
		spec.Name = fmt.Sprintf("%s-%d", name, n+1)
	}
	spec.Description = clip(fmt.Sprintf("From %s:%d: %s", strings.ToValidUTF8(p.path, "\ufffd"), p.line, strings.TrimSpace(p.text)), 1024)
	spec.Tags = []string{Tag}
	spec.Block = domain.BlockParallel
	spec.Handler = "command"
	spec.Param = p.param(command, stdin, hasStdin)
	check := spec
	if check.Group == "" {
		check.Group = "default" // so that everything else is validated even if the caller has not chosen a group yet
	}
	if err := check.Validate(); err != nil {
		return p.refuse(reason(err))
	}
	p.seen[name]++
	p.result.Jobs = append(p.result.Jobs, Job{Spec: spec, Line: p.line})
	if drawn {
		p.changed("the import chooses the random time once: the schedule is " + expr)
	}
	if hasStdin {
		p.changed("the text after % becomes the command's standard input, through printf")
	}
	return Entry
}

// commandParam is the object form of the parameter of handler `command`.
type commandParam struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"`
	Dir  string            `json:"dir,omitempty"`
}

// param returns the parameter of handler `command`. It has the array form if the entry has no environment.
func (p *parser) param(command, stdin string, hasStdin bool) string {
	shell := p.lookup("SHELL")
	if shell == "" || shell == "/bin/sh" {
		shell = "sh"
	}
	c := commandParam{Argv: []string{shell, "-c", command}}
	if hasStdin {
		// The shell expands nothing in its positional parameters, so command and input need no quoting.
		c.Argv = []string{"sh", "-c", `printf %s "$2" | "$0" -c "$1"`, shell, command, stdin}
	}
	if home := p.lookup("HOME"); path.IsAbs(home) {
		c.Dir = home // cron changes to HOME before it runs a command
	}
	for _, v := range p.env {
		if c.Env == nil {
			c.Env = make(map[string]string)
		}
		c.Env[v.name] = v.value
	}
	var value any = c
	if c.Env == nil && c.Dir == "" {
		value = c.Argv
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // keep && and > readable
	if err := e.Encode(value); err != nil {
		panic(err) // strings and maps of strings can always be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cutFields returns the first n fields of s, joined by single blanks, and the rest after the blanks that follow them.
func cutFields(s string, n int) (fields, rest string) {
	var parts []string
	rest = strings.TrimLeft(s, " \t")
	for range n {
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			break
		}
		parts = append(parts, rest[:end])
		rest = strings.TrimLeft(rest[end:], " \t")
	}
	return strings.Join(parts, " "), rest
}

// splitPercent splits the command from its standard input at the first % that is not escaped by a backslash, like cron:
// \% stands for %, any other backslash stays. In the input, an unescaped % is a newline, and the input ends with a
// newline.
func splitPercent(s string) (command, stdin string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			if s[i] != '%' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
		case s[i] == '%':
			return b.String(), input(s[i+1:]), true
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), "", false
}

func input(s string) string {
	var b strings.Builder
	escaped := false
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '%' && !escaped:
			b.WriteByte('\n')
		case ch == '%':
			b.WriteByte('%')
		default:
			if escaped {
				b.WriteByte('\\')
			}
			if ch != '\\' {
				b.WriteByte(ch)
			}
		}
		escaped = s[i] == '\\'
	}
	if escaped {
		b.WriteByte('\\')
	}
	if text := b.String(); text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

// clip shortens s to at most n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
