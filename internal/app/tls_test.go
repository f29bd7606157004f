package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// authority is a certificate authority for tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, cert: cert, file: filepath.Join(t.TempDir(), "ca.pem")}
	a.put(a.file, "CERTIFICATE", der)
	return a
}

// put replaces a file with a rename, as tools that renew certificates do.
func (a *authority) put(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes a certificate for this machine and its key.
func (a *authority) issue(serial int64, certFile, keyFile string) {
	a.t.Helper()
	a.issueUntil(serial, certFile, keyFile, time.Now().Add(30*24*time.Hour))
}

func (a *authority) issueUntil(serial int64, certFile, keyFile string, end time.Time) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-100 * 24 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	if keyFile != "" {
		a.put(keyFile, "PRIVATE KEY", private)
	}
	a.put(certFile, "CERTIFICATE", der)
}

func (a *authority) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// A server uses a renewed certificate from the next connection on, and ignores an invalid one.
func TestCertificateIsReadAnew(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca.issue(10, cert, key)
	var log bytes.Buffer
	ln, err := listen(config.Web{HTTP: "127.0.0.1:0", TLSCert: cert, TLSKey: key}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.(*tls.Conn).Handshake() //nolint:errcheck // the client's handshake reports the error
			c.Close()
		}
	})
	shown := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", ln.Addr().String(), ca.trust())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	want := func(what string, serial int64) {
		t.Helper()
		if got := shown(); got != serial {
			t.Errorf("%s: got certificate %d, want %d", what, got, serial)
		}
	}
	want("at the start", 10)
	ca.issue(11, cert, key)
	want("after a renewal", 11)
	ca.issue(12, cert, "")
	want("while the key is that of the one before", 11)
	want("still", 11)
	ca.issue(13, cert, key)
	want("when both are there", 13)
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	want("without the file", 13)
	ln.Close()
	wg.Wait()
	if n := strings.Count(log.String(), "cannot reload the TLS certificate"); n != 2 { // the wrong key is logged only once, although two handshakes found it
		t.Errorf("got %d warnings, want 2:\n%s", n, log.String())
	}
}

func TestBadCertificates(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca.issue(10, cert, key)
	for _, bad := range []struct {
		flag   string
		change func(*config.Standalone)
	}{
		{"--tls-cert", func(c *config.Standalone) { c.TLSCert, c.TLSKey = cert, cert }},
		{"--tls-cert", func(c *config.Standalone) { c.TLSCert, c.TLSKey = filepath.Join(dir, "none"), key }},
		{"--nats-ca", func(c *config.Standalone) { c.NATSURL, c.NATSCA = "tls://127.0.0.1:1", key }},
		{"--nats-cert", func(c *config.Standalone) { c.NATSURL, c.NATSCert, c.NATSKey = "tls://127.0.0.1:1", key, key }},
	} {
		c := settings(t)
		bad.change(&c)
		var why error
		if c.NATSURL != "" { // roles report this before they start any component
			_, why = (&App{Stderr: io.Discard}).process(c.Log).natsOptions(c.NATS)
		} else {
			_, why = listen(c.Web, slog.New(slog.DiscardHandler))
		}
		if why == nil || domain.CodeOf(why) != domain.Invalid || !strings.Contains(why.Error(), bad.flag) {
			t.Errorf("%s: %v", bad.flag, why)
		}
	}
}

// Loading an expired certificate, or one that expires soon, logs a warning. A metric shows the expiry.
func TestCertificateExpiry(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	left := func(registry *prometheus.Registry) time.Duration {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "belfry_certificate_expiry_seconds" && len(f.GetMetric()) == 1 {
				return time.Duration(f.GetMetric()[0].GetGauge().GetValue()) * time.Second
			}
		}
		t.Fatal("there is no metric")
		return 0
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		left time.Duration
		want string
	}{{-day, "has expired"}, {13 * day, "expires soon"}, {15 * day, ""}} {
		warned := func(what string, log *bytes.Buffer) {
			t.Helper()
			if said := log.String(); strings.Count(said, "level=WARN") != map[bool]int{true: 0, false: 1}[c.want == ""] || !strings.Contains(said, c.want) {
				t.Errorf("%s, %v before the expiry: %q", what, c.left, said)
			}
			log.Reset()
		}
		near := func(what string, got time.Duration) {
			t.Helper()
			if got > c.left || got < c.left-time.Hour {
				t.Errorf("%s: the metric is %v, want %v", what, got, c.left)
			}
		}
		ca.issueUntil(10, cert, key, time.Now().Add(c.left))
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		ln, err := listen(config.Web{HTTP: "127.0.0.1:0", TLSCert: cert, TLSKey: key}, logger)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		warned("a server", &log)
		registry := prometheus.NewRegistry()
		meterListener(registry, ln)
		near("a server", left(registry))
		if said := log.String(); said != "" {
			t.Errorf("the scrape logs %q", said)
		}

		p := &process{log: logger, registry: prometheus.NewRegistry()}
		if _, err := p.natsTLS(config.NATSTLS{NATSCert: cert, NATSKey: key}); err != nil {
			t.Fatal(err)
		}
		warned("a client of NATS", &log)
		near("a client of NATS", left(p.registry))

		// A renewed certificate is checked again, without a restart.
		ca.issueUntil(11, cert, key, time.Now().Add(20*day))
		if got := left(registry); got < 19*day {
			t.Errorf("after the renewal the metric is %v", got)
		}
		if said := log.String(); strings.Contains(said, "level=WARN") {
			t.Errorf("after the renewal: %q", said)
		}
		log.Reset()
		ca.issueUntil(12, cert, key, time.Now().Add(c.left))
		near("after a bad renewal", left(registry))
		if said := log.String(); strings.Contains(said, "level=WARN") != (c.want != "") || !strings.Contains(said, c.want) {
			t.Errorf("after a bad renewal: %q", said)
		}
	}
}

// lines collects the output of a process.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// patience is the time limit of waits, long enough for a busy machine.
const patience = 5 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if ok() {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("timed out waiting for %s", what)
}

var printed = regexp.MustCompile(`console: (https://\S+)\nnats: (tls://\S+)\n`)

// TestStandaloneOverTLS checks that console and NATS accept TLS only, that an executor with the authority's certificate runs jobs,
// that cookies are for https only, and that the debug log contains no secrets.
func TestStandaloneOverTLS(t *testing.T) {
	ca := newAuthority(t)
	c := settings(t)
	dir := t.TempDir()
	c.TLSCert, c.TLSKey = filepath.Join(dir, "web.pem"), filepath.Join(dir, "web.key")
	c.NATSTLSCert, c.NATSTLSKey = filepath.Join(dir, "nats.pem"), filepath.Join(dir, "nats.key")
	ca.issue(20, c.TLSCert, c.TLSKey)
	ca.issue(21, c.NATSTLSCert, c.NATSTLSKey)
	const password = "hunter2-hunter2"
	c.AdminPassword, c.SecretKey, c.Demo = password, "0123456789abcdef0123456789abcdef", true
	c.Level, c.Format = "debug", "json"
	var out, log lines
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	a := &App{Stdout: &out, Stderr: &log}
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if err := a.Standalone(ctx, c); err != nil {
			t.Errorf("standalone: %v", err)
		}
	})
	eventually(t, "the start", func() bool {
		select {
		case <-ended:
			t.Fatalf("it ended:\n%s", log.String())
		default:
		}
		return printed.MatchString(out.String())
	})
	found := printed.FindStringSubmatch(out.String())
	web, natsURL := found[1], found[2]

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.trust(), ForceAttemptHTTP2: true}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	token := ""
	do := func(method, path, body string) (*http.Response, map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, web+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		json.Unmarshal(content, &fields) //nolint:errcheck // pages are not JSON
		if answer.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, content)
		}
		return answer, fields
	}
	answer, fields := do("POST", "/api/v1/auth/login", `{"username":"admin","password":"`+password+`"}`)
	if cookie := answer.Header.Get("Set-Cookie"); !strings.Contains(cookie, "Secure") || answer.Header.Get("Strict-Transport-Security") == "" || answer.ProtoMajor != 2 {
		t.Errorf("the log-in over %s: cookie %q, %v", answer.Proto, cookie, answer.Header)
	}
	token, _ = fields["token"].(string)
	if answer, err := http.Get("http" + strings.TrimPrefix(web, "https") + "/healthz"); err == nil { //nolint:noctx // one test of a minute
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("a request without TLS got status %d", answer.StatusCode)
		}
	}

	_, group := do("POST", "/api/v1/groups", `{"name":"far"}`)
	groupToken, _ := group["token"].(string)
	if nc, err := nats.Connect(strings.Replace(natsURL, "tls://", "nats://", 1), nats.Token(groupToken), nats.MaxReconnects(0)); err == nil {
		nc.Close()
		t.Error("a client without the authority's certificate can connect to NATS")
	}
	e := config.DefaultExecutor()
	e.Group, e.NATSURL, e.Token, e.NATSCA = "far", config.URL(natsURL), config.Secret(groupToken), ca.file
	e.SpoolDir, e.Level, e.Format = t.TempDir(), "debug", "json"
	wg.Go(func() {
		if err := (&App{Stdout: &out, Stderr: &log}).Executor(ctx, e); err != nil {
			t.Errorf("executor: %v", err)
		}
	})
	_, job := do("POST", "/api/v1/jobs", `{"group":"far","name":"hello","handler":"echo","schedule":{"kind":"none"},"param":"x"}`)
	_, triggered := do("POST", fmt.Sprintf("/api/v1/jobs/%v/trigger", job["id"]), "")
	run := fmt.Sprint(triggered["run_ids"].([]any)[0])
	eventually(t, "the run", func() bool {
		_, r := do("GET", "/api/v1/runs/"+run, "")
		return r["state"] == "succeeded"
	})
	_, made := do("POST", "/api/v1/tokens", `{"name":"ci"}`)
	do("POST", "/api/v1/auth/logout", "")
	cancel()
	<-ended
	for what, secret := range map[string]string{"password": password, "key": c.SecretKey.Reveal(), "session": token, "group's token": groupToken, "API token": made["token"].(string)} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the %s is in the log", what)
		}
	}
	if !strings.Contains(log.String(), `"level":"DEBUG"`) {
		t.Error("the log is too short for the check")
	}
}

// People open the printed address, so it is not that of all addresses.
func TestURLOf(t *testing.T) {
	for listen, want := range map[string]string{":0": "http://127.0.0.1:", "0.0.0.0:0": "http://127.0.0.1:", "127.0.0.1:0": "http://127.0.0.1:"} {
		ln, err := net.Listen("tcp", listen) //nolint:gosec // closed at once
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if got := urlOf(ln); err != nil || got != want+port {
			t.Errorf("%s: %s, want %s%s", listen, got, want, port)
		}
		_ = ln.Close()
	}
}
