package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

// print writes v as JSON or YAML, or calls write to fill a table.
func (a *app) print(form string, v any, write func(t *table)) error {
	switch form {
	case "json":
		e := json.NewEncoder(a.stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "yaml":
		text, err := jobfile.YAML(v)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	write(&table{w})
	return w.Flush()
}

// table writes aligned columns.
type table struct{ w io.Writer }

// row writes one line. Cells come from the server, so row replaces control characters.
func (t *table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, cell(c))
	}
	fmt.Fprintln(t.w)
}

// pair writes a name and a value, unless the value is empty.
func (t *table) pair(name string, value any) {
	if text := cell(value); text != "-" {
		fmt.Fprintf(t.w, "%s\t%s\n", name, text)
	}
}

func cell(v any) string {
	var text string
	switch v := v.(type) {
	case *domain.Instant:
		if v != nil {
			text = people(v.Time)
		}
	case domain.Instant:
		text = people(v.Time)
	case bool:
		text = "no"
		if v {
			text = "yes"
		}
	case []string:
		text = strings.Join(v, ", ")
	default:
		text = fmt.Sprint(v)
	}
	if text == "" {
		return "-"
	}
	return printable(text)
}

// people formats an instant in the local zone, with its offset.
func people(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }

// printable replaces characters that control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// logText makes a log line safe for a terminal. It keeps tabs and colours. If the output is not a terminal, it returns the line
// unchanged.
func logText(s string, terminal bool) string {
	if !terminal {
		return s
	}
	var b strings.Builder
	clean := func(s string) {
		for i, part := range strings.Split(s, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(printable(part))
		}
	}
	last := 0
	for _, at := range colour.FindAllStringIndex(s, -1) {
		clean(s[last:at[0]])
		b.WriteString(s[at[0]:at[1]])
		last = at[1]
	}
	clean(s[last:])
	if last > 0 {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// fileOf returns the terminal of a reader or writer, or false.
func fileOf(v any) (*os.File, bool) {
	f, ok := v.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// shown shortens a long text for a table.
func shown(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// scheduleText describes a schedule briefly.
func scheduleText(s domain.Schedule) string {
	switch s.Kind {
	case domain.ScheduleCron:
		text := s.Expr
		if s.Dialect == domain.DialectQuartz {
			text += " (quartz)"
		}
		if s.TimeZone != "" {
			text += " " + s.TimeZone
		}
		return text + exceptText(s)
	case domain.ScheduleFixedRate:
		return "every " + s.Every.Std().String() + exceptText(s)
	case domain.ScheduleFixedDelay:
		return s.Delay.Std().String() + " after the end"
	case domain.ScheduleOnce:
		if s.At != nil {
			return "once at " + people(s.At.Time)
		}
	case domain.ScheduleNone:
		return "by hand"
	}
	return string(s.Kind)
}

// exceptText names the calendar of days on which a schedule does not fire.
func exceptText(s domain.Schedule) string {
	if s.Calendar == "" {
		return ""
	}
	return ", except " + s.Calendar
}

func milliseconds(n *int64) string {
	switch {
	case n == nil:
		return "-"
	case *n == 0:
		return "<1ms"
	}
	return (time.Duration(*n) * time.Millisecond).String()
}
