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
	got, err := Permissions("pay_roll-1")
	if err != nil {
		t.Fatal(err)
	}
	wantSub := []string{"belfry.v1.trigger.pay_roll-1.>", "belfry.v1.control.pay_roll-1.>", "belfry.v1.run.pay_roll-1", "_INBOX_pay_roll-1.>"}
	wantPub := []string{"belfry.v1.result.pay_roll-1", "belfry.v1.log.pay_roll-1", "$KV.belfry_instances.pay_roll-1.*"}
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

func TestPermissionsRefuseWhatIsNoGroup(t *testing.T) {
	for _, name := range []string{
		"", "*", ">", "a.b", "a.*", "a.>", "a b", "a\n", "\na", "a\tb", "A", "-a", "_a", "ä", "a$", "a\x00", "a\r\nPUB x 0",
		strings.Repeat("a", 64), "{{name()}}",
	} {
		got, err := Permissions(name)
		if domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if len(got.Pub.Allow)+len(got.Sub.Allow) > 0 || got.Resp != nil {
			t.Errorf("%q: got permissions", name)
		}
	}
	for _, name := range []string{"a", "0", strings.Repeat("a", 63), "a-_"} {
		if _, err := Permissions(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
