package stream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Streams mask the same secrets as lists.
func TestStreamsHideSecrets(t *testing.T) {
	for role, hides := range map[account.Role]bool{account.Viewer: true, account.Operator: false, account.Admin: false} {
		s := Stream{hides: rest.HidesSecrets(auth.Identity{Principal: account.Principal{Role: role}})}
		s.Event("run", 0, map[string]string{"param": "password=hunter2"})
		if said := s.buf.String(); strings.Contains(said, "hunter2") == hides || strings.Contains(said, "•••") != hides {
			t.Errorf("role %s gets %s", role, said)
		}
	}
}

// valid accepts every token.
type valid struct{ account.Principal }

func (v valid) Authenticate(context.Context, string) (account.Principal, error) {
	return v.Principal, nil
}

// A stream ends at the expiry of its token, and not at the check after that.
func TestStreamEndsAtExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := account.Principal{Role: account.Viewer, ExpiresAt: time.Now().Add(10 * time.Minute)}
		s := New(valid{p}, 7*time.Minute, nil)
		ctx, stop := s.Watch(t.Context(), auth.Identity{Principal: p})
		defer stop()
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("it ends before the expiry")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it outlives the token")
		}
		// Without an expiry it lasts an hour.
		p.ExpiresAt = time.Time{}
		ctx, stop = New(valid{p}, 7*time.Minute, nil).Watch(t.Context(), auth.Identity{Principal: p})
		defer stop()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it ends although the rights are the same")
		}
	})
}
