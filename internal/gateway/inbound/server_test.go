package inbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// leaks checks at the end of a test that no goroutine of the server is left.
func leaks(t *testing.T) {
	// The server waits half a second before it closes a connection with an unread body.
	ignore := append(pgtest.IgnoreServer(), goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
	t.Cleanup(func() { goleak.VerifyNone(t, ignore...) })
}

// backend stands for the directory and the store.
type backend struct {
	mu         sync.Mutex
	registered []gateway.Registration
	left       []string
	batches    [][]gateway.End
	groups     []string
	unusable   []string
	fault      error // of the next changes
	forgets    bool  // it does not keep ends
}

var errDenied = domain.NewError(domain.Forbidden, "denied")

func (b *backend) Speaker(_ context.Context, app, token string, _ netip.Addr) (gateway.Group, error) {
	if app != "app" || token != "secret" {
		return gateway.Group{}, errDenied
	}
	return gateway.Group{Name: "g", App: "app"}, nil
}

func (b *backend) Speaks(token string, _ netip.Addr) ([]string, error) {
	if token == "other" {
		return []string{"o"}, nil
	}
	if token != "secret" {
		return nil, errDenied
	}
	return []string{"g", "h"}, nil
}

func (b *backend) Register(_ context.Context, r gateway.Registration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		b.registered = append(b.registered, r)
	}
	return b.fault
}

func (b *backend) Leave(_ context.Context, group, instance string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = append(b.left, group+"/"+instance)
	return b.fault
}

func (b *backend) Check(group string, to netip.AddrPort) error {
	if group == "g" && to.Addr().Is4() && to.Addr().As4()[0] == 10 {
		return nil
	}
	return errors.New("the address may not be reached")
}

func (b *backend) Finish(_ context.Context, groups []string, ends []gateway.End) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil && !b.forgets {
		b.groups, b.batches = groups, append(b.batches, slices.Clone(ends))
	}
	return b.fault
}

func (b *backend) Unusable(_ context.Context, _ []string, item []byte, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unusable = append(b.unusable, fmt.Sprintf("%s: %v", item, why))
}

// serve starts the server, and returns its address.
func serve(t *testing.T, b *backend, edit ...func(*Server)) string {
	t.Helper()
	leaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(b, b, b, slog.New(slog.DiscardHandler))
	for _, e := range edit {
		e(s)
	}
	server := s.HTTP()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(Limit(l))
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
		http.DefaultClient.CloseIdleConnections()
	})
	return l.Addr().String()
}

// post sends a request, and returns the code and the text of the answer.
func post(t *testing.T, url, token string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(protocol.HeaderToken, token)
	r.Header.Set("User-Agent", "Java/17.0.15")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var reply struct {
		Code int
		Msg  string
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil || response.StatusCode != 200 && response.StatusCode != 404 {
		t.Fatalf("%s: status %d, %v", url, response.StatusCode, err)
	}
	return reply.Code, reply.Msg
}

func registration(address string) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":"app","registryValue":%q}`, address))
}

func TestRegistration(t *testing.T) {
	b := &backend{}
	base := "http://" + serve(t, b)
	for _, prefix := range []string{"/api", "/xxl-job-admin/api"} {
		if code, text := post(t, base+prefix+"/registry", "secret", registration("http://10.0.0.5:9999/")); code != 200 {
			t.Errorf("%d %s", code, text)
		}
	}
	post(t, base+"/api/registry", "secret", registration("http://executor.test:9999/"))
	post(t, base+"/api/registryRemove", "secret", registration("http://10.0.0.5:9999"))
	r := b.registered
	if len(r) != 3 || r[0].Group != "g" || r[0].Instance != "10-0-0-5-9999" || r[0].URL != "http://10.0.0.5:9999" || r[0].Source != netip.MustParseAddr("127.0.0.1") || r[0].Kind != "java" ||
		r[0].Agent != "Java/17.0.15" || len(r[0].BootID) < 16 || r[0].BootID == r[1].BootID || r[2].URL != "http://executor.test:9999" || !slices.Equal(b.left, []string{"g/10-0-0-5-9999"}) {
		t.Errorf("registered %+v, left %v", r, b.left)
	}

	long := fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":"app","registryValue":"http://10.0.0.5:9999","x":%q}`, strings.Repeat("x", protocol.MaxRegistration))
	for _, tt := range []struct {
		name, token string
		body        io.Reader
		text        string
	}{
		{"wrong token", "wrong", registration("http://10.0.0.5:9999/"), "denied"},
		{"another app", "secret", strings.NewReader(`{"registryGroup":"EXECUTOR","registryKey":"other","registryValue":"http://10.0.0.5:9999"}`), "denied"},
		{"no JSON", "secret", strings.NewReader(`x`), "JSON object"},
		{"a bad address", "secret", registration("ftp://10.0.0.5"), "http://"},
		{"a forbidden address", "secret", registration("http://169.254.169.254/"), "may not be reached"},
		{"a forbidden address, IPv6", "secret", registration("http://[::1]/"), "may not be reached"},
		{"a long body", "secret", strings.NewReader(long), "too long"},
	} {
		if code, text := post(t, base+"/api/registry", tt.token, tt.body); code != 500 || !strings.Contains(text, tt.text) {
			t.Errorf("%s: %d %s", tt.name, code, text)
		}
	}
	b.fault = domain.WrapError(domain.Unavailable, "Postgres cannot be reached", errors.New("secret details"))
	if code, text := post(t, base+"/api/registry", "secret", registration("http://10.0.0.5:9999/")); code != 500 || strings.Contains(text, "Postgres") || !strings.Contains(text, "try again") {
		t.Errorf("Postgres is away: %d %s", code, text)
	}
	if len(b.registered) != 3 {
		t.Errorf("a refused address was registered: %+v", b.registered[3:])
	}
}

func TestOtherRequests(t *testing.T) {
	base := "http://" + serve(t, &backend{})
	for path, want := range map[string]string{"/xxl-job-admin/jobinfo/add": "Belfry's own API", "/login": "Belfry's own API", "/": "serves /api/registry", "/api/other": "serves /api/registry"} {
		if code, text := post(t, base+path, "secret", strings.NewReader("")); code != 500 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/registry", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != 405 {
		t.Fatalf("GET: %v, %v", response, err)
	}
	response.Body.Close()
}

func TestCallback(t *testing.T) {
	b := &backend{}
	url := "http://" + serve(t, b) + "/api/callback"
	body := `[{"logId":1,"handleCode":200,"handleMsg":"out"},{"logId":"x"},{"logId":2,"handleCode":500,"handleMsg":"scheduling center kill job. [job running, killed]"}]`
	if code, text := post(t, url, "secret", strings.NewReader(body)); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	want := []gateway.End{
		{LogID: 1, Result: gateway.Result{Outcome: "succeeded", Output: "out"}},
		{LogID: 2, Result: gateway.Result{Outcome: "failed", Reason: "lost", Message: "scheduling center kill job. [job running, killed]"}, Killed: true},
	}
	if len(b.batches) != 1 || !slices.Equal(b.batches[0], want) || !slices.Equal(b.groups, []string{"g", "h"}) || len(b.unusable) != 1 || !strings.Contains(b.unusable[0], `{"logId":"x"}: `) {
		t.Errorf("%+v, groups %v, unusable %v", b.batches, b.groups, b.unusable)
	}
	if code, _ := post(t, url, "wrong", strings.NewReader(body)); code != 500 || len(b.batches) != 1 {
		t.Errorf("a wrong token: %d, %d batches", code, len(b.batches))
	}
	// What came before the end of a body that ends early is stored.
	if code, text := post(t, url, "secret", strings.NewReader(`[{"logId":3,"handleCode":200},{"logId":4,`)); code != 500 || !strings.Contains(text, "ends before") || len(b.batches) != 2 || b.batches[1][0].LogID != 3 {
		t.Errorf("a short body: %d %s, %+v", code, text, b.batches)
	}
	b.fault = domain.NewError(domain.Unavailable, "away")
	if code, text := post(t, url, "secret", strings.NewReader(body)); code != 500 || !strings.Contains(text, "try again") {
		t.Errorf("not stored: %d %s", code, text)
	}
}

// One body may hold everything that an executor could not report for days.
func TestGiantCallback(t *testing.T) {
	b := &backend{}
	url := "http://" + serve(t, b) + "/api/callback"
	const items, size = 100, 50_000
	message := strings.Repeat("x", size)
	r, w := io.Pipe()
	go func() {
		fmt.Fprint(w, "[")
		for i := range items {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"logId":%d,"logDateTim":1,"handleCode":500,"handleMsg":"%s"}`, i+1, message)
		}
		fmt.Fprint(w, "]")
		w.Close()
	}()
	if code, text := post(t, url, "secret", r); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	next := int64(1)
	for _, batch := range b.batches {
		if len(batch) > batchItems {
			t.Errorf("a batch of %d", len(batch))
		}
		for _, e := range batch {
			if e.LogID != next || len(e.Result.Message) != maxMessage {
				t.Fatalf("callback %d, want %d, a message of %d bytes", e.LogID, next, len(e.Result.Message))
			}
			next++
		}
	}
	if next != items+1 || len(b.batches) < items*size/batchBytes {
		t.Errorf("%d callbacks in %d batches", next-1, len(b.batches))
	}
}

func TestLongBody(t *testing.T) {
	url := "http://" + serve(t, &backend{}, func(s *Server) { s.most = 1 << 20 }) + "/api/callback"
	body := `[{"logId":1,"handleCode":200,"handleMsg":"` + strings.Repeat("x", 1<<20) + `"}]`
	if code, _ := post(t, url, "secret", strings.NewReader(body)); code != 500 {
		t.Errorf("a body beyond the limit: %d", code)
	}
}

func TestEndOf(t *testing.T) {
	for end, want := range map[protocol.End]gateway.Result{
		protocol.EndSucceeded: {Outcome: "succeeded", Output: "m"}, protocol.EndTimedOut: {Outcome: "failed", Reason: "timeout", Message: "m"},
		protocol.EndFailed: {Outcome: "failed", Reason: "handler_error", Message: "m"}, protocol.EndKilled: {Outcome: "failed", Reason: "lost", Message: "m"},
		protocol.EndNotExecuted: {Outcome: "unstarted", Message: "m"},
	} {
		if got := EndOf(protocol.Callback{LogID: 7, End: end, Message: "m"}); got.Result != want || got.LogID != 7 || got.Killed != (end == protocol.EndKilled) {
			t.Errorf("%s: %+v", end, got)
		}
	}
}

// Clients that stall in the middle of a body stop neither registrations nor the callbacks of other groups, and are given up.
func TestSlowBodies(t *testing.T) {
	address := serve(t, &backend{}, func(s *Server) { s.stall = 300 * time.Millisecond })
	var stalled []net.Conn
	for range readersOfOne {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /api/callback HTTP/1.1\r\nHost: x\r\n%s: secret\r\nContent-Length: 100\r\n\r\n[", protocol.HeaderToken)
		stalled = append(stalled, c)
	}
	if code, text := post(t, "http://"+address+"/api/registry", "secret", registration("http://10.0.0.5:9999/")); code != 200 {
		t.Errorf("a registration with %d stalled bodies: %d %s", len(stalled), code, text)
	}
	if code, text := post(t, "http://"+address+"/api/callback", "other", strings.NewReader(`[{"logId":1,"handleCode":200}]`)); code != 200 {
		t.Errorf("a callback of another group: %d %s", code, text)
	}
	for _, c := range stalled { // until the server closes it
		if reply, _ := io.ReadAll(c); !bytes.Contains(reply, []byte(`"code":500`)) {
			t.Errorf("a stalled body is answered with %q", reply)
		}
	}
	if code, text := post(t, "http://"+address+"/api/callback", "secret", strings.NewReader(`[{"logId":1,"handleCode":200}]`)); code != 200 {
		t.Errorf("a callback afterwards: %d %s", code, text)
	}
}

func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &limited{Listener: inner, most: 4, mostOfSource: 2, sources: map[netip.Addr]int{}}
	accepted := make(chan net.Conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	defer func() { l.Close(); <-done }()
	dial := func(source string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		c, err := d.DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	refused := func(c net.Conn) {
		t.Helper()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("a connection beyond the limit is open")
		}
	}
	dial("127.0.0.1")
	first := <-accepted
	dial("127.0.0.1")
	<-accepted
	refused(dial("127.0.0.1"))
	for range 2 {
		dial("127.0.0.2")
		<-accepted
	}
	refused(dial("127.0.0.3"))
	first.Close()
	first.Close() // counts once
	dial("127.0.0.3")
	<-accepted
	refused(dial("127.0.0.3"))
	if l.all != 4 || len(l.sources) != 3 {
		t.Errorf("%d connections, sources %v", l.all, l.sources)
	}
}
