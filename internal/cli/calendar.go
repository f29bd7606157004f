package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

type calendarCmd struct {
	connection
	List   calendarListCmd   `cmd:"" help:"List calendars."`
	Get    calendarGetCmd    `cmd:"" help:"Show one calendar."`
	Create calendarCreateCmd `cmd:"" help:"Create a calendar."`
	Update calendarUpdateCmd `cmd:"" help:"Change a calendar, for all jobs that use it."`
	Delete calendarDeleteCmd `cmd:"" help:"Delete calendars that no job uses."`
}

type calendarListCmd struct{}

func (*calendarListCmd) Help() string { return "Example:\n\n    belfry calendar list" }

func (c *calendarListCmd) Run(a *app, parent *calendarCmd, cl *client.Client) error {
	calendars, err := cl.Calendars(a.ctx, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, calendars, func(t *table) {
		t.row("NAME", "WEEKDAYS", "DATES", "NEXT DATE", "JOBS", "DESCRIPTION")
		today := domain.DateOf(time.Now())
		for _, k := range calendars {
			next := ""
			if i := slices.IndexFunc(k.Dates, func(d domain.Date) bool { return d >= today }); i >= 0 {
				next = k.Dates[i].String()
			}
			t.row(k.Name, texts(k.Weekdays), len(k.Dates), next, k.Jobs, shown(k.Description, 80))
		}
	})
}

// texts returns the days as strings.
func texts[T domain.Weekday | domain.Date](days []T) []string {
	out := make([]string, len(days))
	for i, d := range days {
		out[i] = fmt.Sprint(d)
	}
	return out
}

type calendarGetCmd struct {
	Name string `arg:"" help:"The calendar's name."`
}

func (*calendarGetCmd) Help() string {
	return "Examples:\n\n    belfry calendar get holidays\n    belfry calendar get holidays -o yaml"
}

func (c *calendarGetCmd) Run(a *app, parent *calendarCmd, cl *client.Client) error {
	k, err := cl.Calendar(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.printCalendar(parent.Output, k)
}

func (a *app) printCalendar(form string, k domain.Calendar) error {
	return a.print(form, k, func(t *table) {
		t.pair("name", k.Name)
		t.pair("description", k.Description)
		t.pair("weekdays", texts(k.Weekdays))
		t.pair("dates", texts(k.Dates))
		t.pair("jobs", k.Jobs)
		t.pair("version", k.Version)
		t.pair("created", k.CreatedAt)
		t.pair("updated", k.UpdatedAt)
		t.pair("by", k.UpdatedBy)
	})
}

// dayFlags holds the days of a calendar as the flags give them. The server checks them.
type dayFlags struct {
	Weekdays []string `name:"weekday" env:"BELFRY_WEEKDAYS" placeholder:"DAY" help:"Days of the week that are off, such as saturday,sunday."`
	Dates    []string `name:"date" env:"BELFRY_DATES" placeholder:"DATE" help:"Dates that are off, such as 2026-12-25."`
	File     string   `short:"f" env:"BELFRY_DATES_FILE" placeholder:"FILE" help:"A file with dates that are off, one per line; # starts a comment; - is standard input."`
}

// dates returns the dates of the flags and of the file. given reports whether any of these flags is set.
func (f *dayFlags) dates(a *app) (dates []string, given bool, err error) {
	dates, given = slices.Clone(f.Dates), len(f.Dates) > 0
	if f.File == "" {
		return dates, given, nil
	}
	data, err := a.readFile(f.File)
	if err != nil {
		return nil, false, err
	}
	for n, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		var date domain.Date
		switch line = strings.TrimSpace(line); {
		case line == "":
			continue
		case date.UnmarshalText([]byte(line)) != nil:
			return nil, false, fmt.Errorf("%s, line %d: %q is not a date; write dates as 2026-12-25", f.File, n+1, clipped(line))
		}
		dates = append(dates, line)
	}
	return dates, true, nil
}

func clipped(s string) string { return shown(s, 40) }

// calendarBody is a calendar in a request to the server.
type calendarBody struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Weekdays    []string `json:"weekdays"`
	Dates       []string `json:"dates"`
	Version     int      `json:"version,omitempty"`
}

type calendarCreateCmd struct {
	Name        string `arg:"" help:"The calendar's name: a-z, 0-9, _ and -."`
	Description string `env:"BELFRY_DESCRIPTION" placeholder:"TEXT" help:"Description of the calendar."`
	dayFlags
}

func (*calendarCreateCmd) Help() string {
	return "Jobs whose schedule names the calendar do not fire on its days. The days are those of each job's time zone.\n\nExamples:\n\n" +
		"    belfry calendar create weekends --weekday saturday,sunday\n" +
		"    belfry calendar create holidays --date 2026-12-25,2026-12-26 --description \"the office is closed\"\n" +
		"    belfry calendar create closed -f dates.txt"
}

func (c *calendarCreateCmd) Run(a *app, parent *calendarCmd, cl *client.Client) error {
	body := calendarBody{Name: c.Name, Description: c.Description, Weekdays: append([]string{}, c.Weekdays...)}
	dates, _, err := c.dates(a)
	if err != nil {
		return err
	}
	body.Dates = append([]string{}, dates...)
	k, err := cl.CreateCalendar(a.ctx, body)
	if err != nil {
		return err
	}
	return a.printCalendar(parent.Output, k)
}

// noDays empties a list of days.
const noDays = "none"

type calendarUpdateCmd struct {
	Name        string  `arg:"" help:"The calendar's name."`
	Description *string `env:"BELFRY_DESCRIPTION" placeholder:"TEXT" help:"Description of the calendar."`
	dayFlags
	Add    []string `env:"BELFRY_ADD_DATES" placeholder:"DATE" help:"Dates to add."`
	Remove []string `env:"BELFRY_REMOVE_DATES" placeholder:"DATE" help:"Dates to remove."`
}

func (*calendarUpdateCmd) Help() string {
	return "Fields without a flag stay unchanged. --weekday, --date and --file replace the whole list; the word none empties it. --add and --remove change single dates. " +
		"The change takes effect at once, and each job that uses the calendar gets a new version.\n\nExamples:\n\n" +
		"    belfry calendar update holidays --add 2027-01-01\n    belfry calendar update holidays -f dates.txt\n    belfry calendar update weekends --weekday none"
}

func (c *calendarUpdateCmd) Run(a *app, parent *calendarCmd, cl *client.Client) error {
	dates, given, err := c.dates(a)
	if err != nil {
		return err
	}
	k, err := cl.Calendar(a.ctx, c.Name)
	if err != nil {
		return err
	}
	body := calendarBody{Name: k.Name, Description: k.Description, Weekdays: texts(k.Weekdays), Dates: texts(k.Dates), Version: k.Version}
	if c.Description != nil {
		body.Description = *c.Description
	}
	if len(c.Weekdays) > 0 {
		body.Weekdays = unlessNone(c.Weekdays)
	}
	if given {
		body.Dates = unlessNone(dates)
	}
	for _, d := range c.Remove {
		if !slices.Contains(body.Dates, d) {
			return &usageError{fmt.Sprintf("--remove %s: the calendar does not have this date", clipped(d))}
		}
	}
	body.Dates = append(slices.DeleteFunc(body.Dates, func(d string) bool { return slices.Contains(c.Remove, d) }), c.Add...)
	if k, err = cl.ReplaceCalendar(a.ctx, c.Name, body); err != nil {
		return err
	}
	return a.printCalendar(parent.Output, k)
}

// unlessNone returns the days. It returns an empty list if the only day is the word none.
func unlessNone(days []string) []string {
	if len(days) == 1 && days[0] == noDays {
		return []string{}
	}
	return days
}

type calendarDeleteCmd struct {
	Names []string `arg:"" name:"name" help:"Names of calendars."`
}

func (*calendarDeleteCmd) Help() string { return "Example:\n\n    belfry calendar delete holidays" }

func (c *calendarDeleteCmd) Run(a *app, parent *calendarCmd, cl *client.Client) error {
	return a.each(c.Names, func(name string) error {
		if err := cl.DeleteCalendar(a.ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s deleted\n", printable(name))
		return nil
	})
}
