package group_test

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestSeeBoots(t *testing.T) {
	s, pool := openPool(t)
	see := func(instances ...domain.Instance) {
		t.Helper()
		if err := s.SeeBoots(t.Context(), instances); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() (text string) {
		t.Helper()
		// The two instants of a new row can differ by a microsecond.
		const all = `SELECT string_agg(concat_ws(' ', group_name, boot_id, instance, version, host, last_seen > first_seen + interval '1 minute'), ', ' ORDER BY group_name, boot_id) FROM executor_boots`
		if err := pool.QueryRow(t.Context(), all).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	one := domain.Instance{Group: "g", BootID: "b", ID: "one", Version: "1.4", Host: "host-a"}
	see(one, domain.Instance{Group: "f", BootID: "b", ID: "two", Version: "9", Host: "host-b"})
	const both = "f b two 9 host-b f, g b one 1.4 host-a f"
	if got := rows(); got != both {
		t.Errorf("recorded: %s", got)
	}
	// Repeated soon, nothing changes; after ten minutes, the instant does.
	see(one)
	if got := rows(); got != both {
		t.Errorf("after a repetition: %s", got)
	}
	if _, err := pool.Exec(t.Context(), `UPDATE executor_boots SET first_seen = now() - interval '10 minutes', last_seen = now() - interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
	see(one)
	if got := rows(); got != "f b two 9 host-b f, g b one 1.4 host-a t" {
		t.Errorf("ten minutes later: %s", got)
	}
	// Long texts of an executor are cut, and characters that Postgres refuses are removed.
	see(domain.Instance{Group: "z", BootID: "b", ID: "three", Version: "1\x00\xff" + strings.Repeat("ä", 300)})
	var version string
	if err := pool.QueryRow(t.Context(), `SELECT version FROM executor_boots WHERE group_name = 'z'`).Scan(&version); err != nil || version != "1"+strings.Repeat("ä", 98) {
		t.Errorf("the version is %q (%v)", version, err)
	}
}
