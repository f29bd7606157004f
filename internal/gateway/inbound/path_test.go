package inbound_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/directory"
	"github.com/belfryhq/belfry/internal/gateway/ends"
	"github.com/belfryhq/belfry/internal/gateway/inbound"
	"github.com/belfryhq/belfry/internal/gateway/reach"
	"github.com/belfryhq/belfry/internal/gateway/spool"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// addresses stores registrations for the owner "one".
type addresses struct {
	*gateway.Store
	networks []netip.Prefix
}

func (a addresses) Register(ctx context.Context, r gateway.Registration) error {
	_, err := a.Store.Register(ctx, "one", r, 10, time.Hour)
	return err
}

func (a addresses) Check(_ string, to netip.AddrPort) error {
	return reach.New(a.networks, nil, time.Second).Check(to)
}

// TestPath follows a run from the registration of its executor to its stored result, through all parts that serve requests of executors, with
// Postgres and a spool on disk.
func TestPath(t *testing.T) {
	ctx := t.Context()
	url := pgtest.Database(t, store.Migrate)
	s, err := store.Open(ctx, store.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	gateways := gateway.New(s.Pool(), "0123456789abcdef0123456789abcdef")
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, name := range []string{"billing", "other"} {
		if _, err := s.Pool().Exec(ctx, `INSERT INTO groups (name, token_sha256) VALUES ($1, convert_to($1, 'UTF8'))`, name); err != nil {
			t.Fatal(err)
		}
		if err := gateways.OpenGroup(ctx, gateway.Group{Name: name, App: name + ".App", Token: "token-of-" + name, Networks: loopback, Capacity: 8}); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	groups := directory.New(gateways, log)
	if err := groups.Read(ctx); err != nil {
		t.Fatal(err)
	}
	disk, err := spool.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	var stored []int64
	var letters []string
	keeper := ends.New(gateways, disk, func(_ context.Context, group string, _ []byte, reason error) {
		letters = append(letters, group+": "+reason.Error())
	},
		func(ids []int64) { stored = append(stored, ids...) }, log)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := inbound.New(groups, addresses{gateways, loopback}, keeper, log).HTTP()
	served := make(chan error, 1)
	go func() { served <- server.Serve(inbound.Limit(l)) }()
	defer func() {
		server.Close()
		<-served
		http.DefaultClient.CloseIdleConnections()
	}()

	post := func(endpoint, token, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String()+"/xxl-job-admin/api/"+endpoint, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(protocol.HeaderToken, token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var reply struct{ Code int }
		if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
			t.Fatal(err)
		}
		return reply.Code
	}
	registration := `{"registryGroup":"EXECUTOR","registryKey":"billing.App","registryValue":"http://127.0.0.1:9999/"}`
	if code := post("registry", "token-of-other", registration); code != 500 {
		t.Errorf("with the token of another group: %d", code)
	}
	if code := post("registry", "token-of-billing", strings.Replace(registration, "127.0.0.1", "10.0.0.1", 1)); code != 500 {
		t.Errorf("with an address outside of the networks: %d", code)
	}
	if code := post("registry", "token-of-billing", registration); code != 200 {
		t.Fatalf("the registration: %d", code)
	}

	hold := gateway.Hold{Group: "billing", Instance: "127-0-0-1-9999", Epoch: 1}
	attempt := gateway.Attempt{Run: domain.NewRunID(time.Now()), Number: 1}
	accepted, err := gateways.Accept(ctx, "one", hold, []gateway.Offer{{Attempt: attempt, Bind: 1, WireID: 7, Handler: "demo"}})
	if err != nil || len(accepted) != 1 {
		t.Fatal(accepted, err)
	}
	id := accepted[attempt]
	if at, _, err := gateways.Send(ctx, "one", []gateway.Hold{hold}, []int64{id}); err != nil || len(at) != 1 {
		t.Fatal(at, err)
	}
	report := fmt.Sprintf(`[{"logId":%d,"handleCode":200,"handleMsg":"12 invoices"}]`, id)
	if code := post("callback", "wrong", report); code != 500 {
		t.Errorf("a callback with a wrong token: %d", code)
	}
	if code := post("callback", "token-of-other", report); code != 200 || len(letters) != 1 || !strings.HasPrefix(letters[0], "other: ") {
		t.Errorf("a callback with the token of another group: %d, dead letters %q", code, letters)
	}

	for range 2 {
		if code := post("callback", "token-of-billing", report); code != 200 {
			t.Errorf("the callback: %d", code)
		}
	}
	results, err := gateways.Results(ctx, []int64{id})
	if err != nil || len(results) != 1 || results[0].State != gateway.Ended || results[0].Result != (gateway.Result{Outcome: "succeeded", Output: "12 invoices"}) || !slices.Equal(stored, []int64{id}) {
		t.Errorf("%+v, stored %v, %v", results, stored, err)
	}
	if code := post("registryRemove", "token-of-billing", registration); code != 200 {
		t.Errorf("the removal: %d", code)
	}
	held, err := gateways.Renew(ctx, "one", []gateway.Hold{hold}, time.Hour)
	if err != nil || len(held) != 1 || held[0].LeavingAt == nil {
		t.Errorf("%+v, %v", held, err)
	}
}
