package handlers_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/handlers"
)

// httpRun runs the handler with options on a param that has only a URL.
func httpRun(t *testing.T, o handlers.HTTPOptions, target string) executortest.Result {
	t.Helper()
	return executortest.RunFunc(t.Context(), handlers.NewHTTP(o), executor.RunInfo{ID: "run-1", Attempt: 2, Param: fmt.Sprintf(`{"url": %q}`, target)})
}

// denied checks that the handler refused to connect, with a permanent error.
func denied(t *testing.T, what string, res executortest.Result) {
	t.Helper()
	if res.Err == nil || !res.Permanent || !strings.Contains(res.Err.Error(), "the address ") {
		t.Errorf("%s: %v, permanent %v", what, res.Err, res.Permanent)
	}
}

// web is a server that counts its requests.
type web struct {
	*httptest.Server
	requests atomic.Int32
	last     atomic.Pointer[http.Request]
}

// newWeb starts a server on an address of this machine. It redirects to the URL, if there is one.
func newWeb(t *testing.T, address, redirect string) *web {
	t.Helper()
	ln, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Skipf("NOT COVERED: this system has no address %s: %v", address, err)
	}
	w := &web{}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		w.last.Store(r)
		if redirect != "" {
			http.Redirect(rw, r, redirect, http.StatusFound)
		}
	}))
	w.Listener.Close()
	w.Listener = ln
	w.Start()
	t.Cleanup(w.Close)
	return w
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestHTTPHeaders(t *testing.T) {
	w := newWeb(t, "127.0.0.1", "")
	if res := httpRun(t, handlers.HTTPOptions{}, w.URL); res.Err != nil {
		t.Fatal(res.Err)
	}
	h := w.last.Load().Header
	if h.Get("Belfry-Run-Id") != "run-1" || h.Get("Belfry-Attempt") != "2" || h.Get("Idempotency-Key") != "run-1" {
		t.Errorf("the request has %v", h)
	}
	res := executortest.RunFunc(t.Context(), handlers.HTTP, executor.RunInfo{ID: "run-1", Param: fmt.Sprintf(`{"url": %q, "headers": {"idempotency-key": "mine"}}`, w.URL)})
	if got := w.last.Load().Header["Idempotency-Key"]; res.Err != nil || len(got) != 1 || got[0] != "mine" {
		t.Errorf("a key of the param: %v, %v", got, res.Err)
	}
}

// TestHTTPNeverReaches: link-local addresses and metadata services are denied, whatever the options allow.
func TestHTTPNeverReaches(t *testing.T) {
	for _, o := range []handlers.HTTPOptions{{}, {DenyPrivate: true}, {Allow: prefixes("0.0.0.0/0", "::/0")}} {
		for _, host := range []string{
			"169.254.169.254", "169.254.1.1", "[fe80::1]", "[fe80::1%25lo]", "[febf::1]", "[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "100.100.100.200",
			"192.0.0.192", "168.63.129.16", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
			"[64:ff9b:1::a9fe:a9fe]", "[::ffff:0:a9fe:a9fe]",
			"[2002:a9fe:a9fe::1]", "[::ffff:100.100.100.200]", "[64:ff9b::100.100.100.200]", "224.0.0.1", "[ff02::1]",
		} {
			denied(t, fmt.Sprintf("%s with %+v", host, o), httpRun(t, o, "http://"+host+"/"))
		}
	}
}

// TestHTTPDeniesPrivate: with DenyPrivate or exceptions, private addresses are denied unless an exception covers them.
func TestHTTPDeniesPrivate(t *testing.T) {
	w := newWeb(t, "127.0.0.1", "")
	named := strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	for name, o := range map[string]handlers.HTTPOptions{
		"no exception": {DenyPrivate: true}, "other exceptions": {Allow: prefixes("127.0.0.2/32", "8.8.8.0/24")},
	} {
		for _, target := range []string{
			w.URL, named, "http://10.1.2.3/", "http://172.31.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://127.8.8.8/", "http://0.0.0.0/",
			"http://[::1]/", "http://[::]/", "http://[fc00::1]/", "http://[fd12::1]/", "http://[::ffff:10.1.2.3]/", "http://[64:ff9b::10.1.2.3]/", "http://[64:ff9b:1::1]/",
		} {
			denied(t, name+": "+target, httpRun(t, o, target))
		}
	}
	if n := w.requests.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	for name, o := range map[string]handlers.HTTPOptions{
		"by default": {}, "by an exception": {DenyPrivate: true, Allow: prefixes("127.0.0.0/8")}, "by an exception alone": {Allow: prefixes("10.0.0.0/8", "127.0.0.1/32")},
	} {
		if res := httpRun(t, o, w.URL); res.Err != nil {
			t.Errorf("allowed %s: %v", name, res.Err)
		}
	}
}

// TestHTTPRedirects: a redirect to a denied address fails, and the server there gets no request.
func TestHTTPRedirects(t *testing.T) {
	metadata := newWeb(t, "127.0.0.1", "http://169.254.169.254/latest/meta-data")
	denied(t, "to a metadata service", httpRun(t, handlers.HTTPOptions{}, metadata.URL))
	inner := newWeb(t, "127.0.0.2", "")
	outer := newWeb(t, "127.0.0.1", inner.URL)
	o := handlers.HTTPOptions{DenyPrivate: true, Allow: prefixes("127.0.0.1/32")}
	denied(t, "to a private address", httpRun(t, o, outer.URL))
	if outer.requests.Load() != 1 || inner.requests.Load() != 0 {
		t.Errorf("%d requests to the first server, %d to the second; want 1 and 0", outer.requests.Load(), inner.requests.Load())
	}
	if res := httpRun(t, handlers.HTTPOptions{}, outer.URL); res.Err != nil || inner.requests.Load() != 1 {
		t.Errorf("an allowed redirect: %v, %d requests", res.Err, inner.requests.Load())
	}
}

// TestHTTPNames: the handler checks the address to which a name resolves at the moment of the connection. The name of this test
// resolves to an allowed address first, and to a denied one afterwards.
func TestHTTPNames(t *testing.T) {
	fine, inner := newWeb(t, "127.0.0.1", ""), newWeb(t, "127.0.0.2", "")
	port := fine.Listener.Addr().(*net.TCPAddr).Port
	innerPort := inner.Listener.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		second string
		port   int
	}{{"127.0.0.2", innerPort}, {"169.254.169.254", port}} {
		names := newNames(t, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(c.second))
		o := handlers.HTTPOptions{Allow: prefixes("127.0.0.1/32"), Resolver: names.resolver()}
		if res := httpRun(t, o, fmt.Sprintf("http://rebind.test:%d/", port)); res.Err != nil {
			t.Errorf("while the name has an allowed address: %v", res.Err)
		}
		denied(t, "the name has "+c.second, httpRun(t, o, fmt.Sprintf("http://rebind.test:%d/", c.port)))
	}
	if inner.requests.Load() != 0 {
		t.Error("a request arrived at the denied address")
	}
}

// TestHTTPProxy: the handler uses no proxy unless the options have one. Then it checks the proxy's address, and the addresses in
// URLs.
func TestHTTPProxy(t *testing.T) {
	proxy, fine := newWeb(t, "127.0.0.1", ""), newWeb(t, "127.0.0.1", "")
	names := newNames(t, netip.MustParseAddr("127.0.0.1"))
	target := fmt.Sprintf("http://proxied.test:%d/", fine.Listener.Addr().(*net.TCPAddr).Port)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	if res := httpRun(t, handlers.HTTPOptions{Resolver: names.resolver()}, target); res.Err != nil || proxy.requests.Load() != 0 || fine.requests.Load() != 1 {
		t.Errorf("without the option: %v, %d requests to the proxy", res.Err, proxy.requests.Load())
	}
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := handlers.HTTPOptions{Proxy: http.ProxyURL(u), DenyPrivate: true}
	denied(t, "a private proxy", httpRun(t, o, target))
	o.Allow = prefixes("127.0.0.1/32")
	denied(t, "a metadata service behind a proxy", httpRun(t, o, "http://169.254.169.254/"))
	denied(t, "a private address behind a proxy", httpRun(t, o, "http://10.1.2.3/"))
	if n := proxy.requests.Load(); n != 0 {
		t.Errorf("%d requests arrived at the proxy", n)
	}
	if res := httpRun(t, o, target); res.Err != nil || proxy.requests.Load() != 1 {
		t.Errorf("with the option: %v, %d requests to the proxy", res.Err, proxy.requests.Load())
	}
}

// names is a DNS server that answers every query with one IPv4 address. Consecutive queries get consecutive addresses of a list; after
// its end, they get the last one.
type names struct {
	conn      net.PacketConn
	addresses []netip.Addr
}

func newNames(t *testing.T, addresses ...netip.Addr) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, done := &names{conn, addresses}, make(chan struct{})
	go func() { defer close(done); n.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return n
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || size < 17 {
			continue
		}
		// A query: a header of 12 bytes, the labels of the name, a zero, the type, the class.
		end := 12
		for buf[end] != 0 {
			end += int(buf[end]) + 1
		}
		question := buf[12 : end+5]
		isA := binary.BigEndian.Uint16(buf[end+1:]) == 1
		answers := byte(0)
		if isA {
			answers = 1
		}
		reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, question...)
		if isA {
			reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			reply = append(reply, n.addresses[0].AsSlice()...)
			if len(n.addresses) > 1 {
				n.addresses = n.addresses[1:]
			}
		}
		_, _ = n.conn.WriteTo(reply, from) // the resolver asks again
	}
}
