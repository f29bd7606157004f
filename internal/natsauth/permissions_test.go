package natsauth

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestPermissions(t *testing.T) {
	got, err := Permissions("pay_roll-1", "Host_7-a")
	if err != nil {
		t.Fatal(err)
	}
	wantSub := []string{"belfry.v1.trigger.pay_roll-1.Host_7-a", "belfry.v1.control.pay_roll-1.Host_7-a", "belfry.v1.run.pay_roll-1", "_INBOX_pay_roll-1.>"}
	wantPub := []string{"belfry.v1.result.pay_roll-1", "belfry.v1.log.pay_roll-1", "$KV.belfry_instances.pay_roll-1.Host_7-a"}
	if !slices.Equal(got.Sub.Allow, wantSub) || len(got.Sub.Deny) != 0 {
		t.Errorf("subscribe %v", got.Sub)
	}
	if !slices.Equal(got.Pub.Allow, wantPub) || len(got.Pub.Deny) != 0 {
		t.Errorf("publish %v", got.Pub)
	}
	if *got.Resp != (jwt.ResponsePermission{MaxMsgs: 1, Expires: 30 * time.Second}) {
		t.Errorf("answers %v", got.Resp)
	}
	// The package comment relies on this in its argument about answers.
	for _, pub := range got.Pub.Allow {
		for _, sub := range got.Sub.Allow {
			if jwt.Subject(pub).IsContainedIn(jwt.Subject(sub)) || strings.HasPrefix(pub, strings.TrimSuffix(sub, ">")) {
				t.Errorf("%s can be published to and is in %s", pub, sub)
			}
		}
	}
}

var (
	badGroups = []string{
		"", "*", ">", "a.b", "a.*", "a.>", "a b", "a\n", "\na", "a\tb", "A", "-a", "_a", "ä", "a$", "a\x00", "a\r\nPUB x 0",
		strings.Repeat("a", 64), "{{name()}}",
	}
	badInstances = []string{
		"", "*", ">", "i.b", "i.*", "i.>", "i b", "i\n", "\ni", "i\tb", "-i", "_i", "ä", "i$", "i\x00", "i\r\nPUB x 0",
		strings.Repeat("i", 129), "{{name()}}", "i1.", ".i1",
	}
)

func TestPermissionsRefuseWhatIsNoName(t *testing.T) {
	refused := func(what string, got jwt.Permissions, err error) {
		t.Helper()
		if domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%s: %v", what, err)
		}
		if len(got.Pub.Allow)+len(got.Sub.Allow) > 0 || got.Resp != nil {
			t.Errorf("%s: got permissions", what)
		}
	}
	for _, name := range badGroups {
		got, err := Permissions(name, "i1")
		refused(name, got, err)
		got, err = ObserverPermissions(name)
		refused(name+", observer", got, err)
	}
	for _, name := range badInstances {
		got, err := Permissions("a", name)
		refused(name, got, err)
	}
	for _, name := range []string{"a", "0", strings.Repeat("a", 63), "a-_"} {
		if _, err := Permissions(name, strings.Repeat("I", 128)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestInstanceOfClientName(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		meant      bool
	}{
		{"a.i1", "i1", true}, {"belfry executor a.Host_7-a", "Host_7-a", true},
		{"", "", false}, {"i1", "", false}, {"b.i1", "", false}, {"belfry executor b.i1", "", false}, {"a", "", false}, {"a_b.i1", "", false},
		{"belfry executor belfry executor a.i1", "", false}, {" a.i1", "", false}, {"my dashboard", "", false},
		{"a.", "", true}, {"a.*", "", true}, {"a.>", "", true}, {"a.i1.x", "", true}, {"a.i1 ", "", true}, {"a." + strings.Repeat("i", 129), "", true},
	} {
		instance, meant, ok := instanceOf(tt.name, "a")
		if instance != tt.want || meant != tt.meant || ok != (tt.want != "") {
			t.Errorf("%q: got %q, %v, %v", tt.name, instance, meant, ok)
		}
	}
}

// FuzzPermissions checks that no names yield a wildcard beyond the group's own inbox, or a subject of anybody else.
func FuzzPermissions(f *testing.F) {
	for _, group := range append(badGroups, "a", "pay_roll-1") {
		f.Add(group, "a.i1", "i1")
	}
	for _, instance := range append(badInstances, "i1", "Host_7-a") {
		f.Add("a", "a."+instance, instance)
	}
	f.Add("a", "belfry executor a.i1", "i1")
	f.Fuzz(func(t *testing.T, group, clientName, instance string) {
		if named, _, ok := instanceOf(clientName, group); ok && clientName != group+"."+named && clientName != formerClient+group+"."+named {
			t.Errorf("%q in group %q is instance %q", clientName, group, named)
		} else if ok {
			checkPermissions(t, group, named)
		}
		checkPermissions(t, group, instance)
	})
}

// checkPermissions checks the permissions of an executor and of an observer, if the names are valid.
func checkPermissions(t *testing.T, group, instance string) {
	t.Helper()
	if observer, err := ObserverPermissions(group); err == nil {
		if !slices.Equal(observer.Sub.Allow, []string{"belfry.v1.run." + group}) || len(observer.Pub.Allow) > 0 || !slices.Equal(observer.Pub.Deny, []string{">"}) || observer.Resp != nil {
			t.Errorf("an observer of %q may %v", group, observer)
		}
	}
	p, err := Permissions(group, instance)
	if err != nil {
		return
	}
	if strings.ContainsAny(group+instance, ".*>") {
		t.Errorf("%q, %q are valid names", group, instance)
	}
	own := group + "." + instance
	inbox := "_INBOX_" + group + ".>"
	if !slices.Equal(p.Sub.Allow, []string{"belfry.v1.trigger." + own, "belfry.v1.control." + own, "belfry.v1.run." + group, inbox}) ||
		!slices.Equal(p.Pub.Allow, []string{"belfry.v1.result." + group, "belfry.v1.log." + group, "$KV.belfry_instances." + own}) {
		t.Errorf("%q, %q: %v", group, instance, p)
	}
	for _, subject := range slices.Concat(p.Sub.Allow, p.Pub.Allow) {
		name := strings.TrimSuffix(subject, ".>")
		if name != subject && subject != inbox {
			t.Errorf("%q, %q: %q has a wildcard", group, instance, subject)
		}
		if strings.ContainsAny(name, "*> \t\r\n\x00") || strings.Contains(name, "..") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			t.Errorf("%q, %q: %q is not a plain subject", group, instance, subject)
		}
		if jwt.Subject(name).HasWildCards() {
			t.Errorf("%q, %q: %q has a wildcard", group, instance, name)
		}
	}
}
