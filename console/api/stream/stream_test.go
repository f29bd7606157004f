package stream

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Streams mask the same secrets as lists.
func TestStreamsHideSecrets(t *testing.T) {
	for role, hides := range map[account.Role]bool{account.Viewer: true, account.Operator: false, account.Admin: false} {
		s := Stream{hides: rest.HidesParams(auth.Identity{Principal: account.Principal{Role: role}})}
		s.Event("run", 0, map[string]string{"param": "password=hunter2"})
		if said := s.buf.String(); strings.Contains(said, "hunter2") == hides || strings.Contains(said, "•••") != hides {
			t.Errorf("role %s gets %s", role, said)
		}
	}
}
