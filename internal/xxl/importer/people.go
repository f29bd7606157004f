package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"net/mail"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/xxl/source"
)

// mostRecipients is the limit of a channel.
const mostRecipients = 50

// alert gives the job a channel for its alarm addresses. Jobs with the same addresses share one.
func (c *converter) alert(j *source.Job, spec *domain.JobSpec, out *Job) {
	var to []string
	for text := range strings.FieldsFuncSeq(j.AlarmEmail, func(r rune) bool { return r == ',' || r == ';' || r == '，' || r == ' ' }) {
		switch a, err := mail.ParseAddress(text); {
		case err != nil:
			out.differs("alarm address %q is not valid", text)
		case !slices.Contains(to, a.Address):
			to = append(to, a.Address)
		}
	}
	if len(to) == 0 {
		return
	}
	slices.Sort(to)
	if len(to) > mostRecipients {
		out.differs("only %d of its %d alarm addresses are kept", mostRecipients, len(to))
		to = to[:mostRecipients]
	}
	name := channelName(to)
	spec.Alert = domain.Alert{Channels: []string{name}, On: []domain.AlertKind{domain.AlertFailed}}
	if !slices.ContainsFunc(c.plan.Channels, func(ch Channel) bool { return ch.Name == name }) {
		c.plan.Channels = append(c.plan.Channels, Channel{Name: name, To: to})
	}
}

// channelName depends on the addresses alone, so that each import finds the channel again.
func channelName(to []string) string {
	user, _, _ := strings.Cut(to[0], "@")
	name := "xxl-" + groupName(user)
	sum := sha256.Sum256([]byte(strings.Join(to, ",")))
	return name[:min(len(name), 40)] + "-" + hex.EncodeToString(sum[:4])
}

func (c *converter) users() {
	taken := map[string]bool{}
	for _, u := range c.db.Users {
		if domain.ValidGroupName(u.Name) {
			taken[u.Name] = true
		}
	}
	for _, u := range c.db.Users {
		out := User{Name: u.Name, Username: u.Name, Role: "operator", Groups: []string{}}
		if !domain.ValidGroupName(u.Name) {
			out.Username = unique(groupName(u.Name), taken)
			taken[out.Username] = true
		}
		if u.Admin {
			out.Role = "admin"
		}
		for _, id := range u.Groups {
			if g, known := c.groups[id]; known && !u.Admin && !slices.Contains(out.Groups, g.Name) {
				out.Groups = append(out.Groups, g.Name)
			}
		}
		slices.Sort(out.Groups)
		switch {
		case u.Admin:
		case len(out.Groups) == 0:
			out.Reason = "may see no executor; without a group, a user of Belfry would see all"
		case len(out.Groups) > 100:
			out.Reason = "has more than 100 executors; Belfry allows 100 groups for a user"
		}
		c.plan.Users = append(c.plan.Users, out)
	}
}
