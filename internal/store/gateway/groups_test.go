package gateway_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

func TestGroups(t *testing.T) {
	w := newWorld(t)
	network := netip.MustParsePrefix("10.1.2.3/8")
	w.open(gateway.Group{Name: "g", App: "My.App", Token: "secret-token", Networks: []netip.Prefix{network, netip.MustParsePrefix("fd00::/8")}, Capacity: 7})
	list, err := w.Groups(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].App != "My.App" || list[0].Token != "secret-token" || list[0].Capacity != 7 || len(list[0].Networks) != 2 ||
		list[0].Networks[0] != network.Masked() || list[0].Fault != nil {
		t.Errorf("%+v, %v", list, err)
	}
	var stored []byte
	if err := w.pool.QueryRow(t.Context(), `SELECT token FROM gateway_groups`).Scan(&stored); err != nil || bytes.Contains(stored, []byte("secret")) || !w.Encrypts() {
		t.Errorf("the token is stored as %q, %v", stored, err)
	}
	for _, other := range []string{"", key + "x"} {
		list, err := gateway.New(w.pool, other).Groups(t.Context(), "", 10)
		if err != nil || list[0].Token != "" || domain.CodeOf(list[0].Fault) != domain.Conflict {
			t.Errorf("with the key %q: %+v, %v", other, list, err)
		}
	}
	for name, tt := range map[string]struct {
		group gateway.Group
		code  domain.Code
		field string
	}{
		"a taken app name": {gateway.Group{Name: "h", App: "My.App", Capacity: 1}, domain.Conflict, "alias"},
		"no such group":    {gateway.Group{Name: "none", App: "none", Capacity: 1}, domain.Invalid, "group"},
		"no capacity":      {gateway.Group{Name: "h", App: "h"}, domain.Invalid, ""},
	} {
		err := w.OpenGroup(t.Context(), tt.group)
		var de *domain.Error
		if domain.CodeOf(err) != tt.code || tt.field != "" && (!errors.As(err, &de) || len(de.Fields) != 1 || de.Fields[0].Location != tt.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := gateway.New(w.pool, "")
	if err := plain.OpenGroup(t.Context(), gateway.Group{Name: "h", App: "h", Token: "other", Capacity: 1}); err != nil || plain.Encrypts() {
		t.Fatal(err)
	}
	if list, err := w.Groups(t.Context(), "g", 10); err != nil || len(list) != 1 || list[0].Token != "other" {
		t.Errorf("a token from before there was a key: %+v, %v", list, err)
	}
	w.open(gateway.Group{Name: "g", App: "g", Capacity: 1})
	if list, err := w.Groups(t.Context(), "", 1); err != nil || len(list) != 1 || list[0].Token != "" || len(list[0].Networks) != 0 {
		t.Errorf("without a token: %+v, %v", list, err)
	}
}
