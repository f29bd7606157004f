package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// certificate is a server's certificate and key in two files. It reads them again when they change, because processes live longer
// than certificates.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	expires time.Time      // the end of current, or of an intermediate certificate that ends before it
	warned  time.Time      // of the last warning about the expiry
	seen    [2]fs.FileInfo // the files that current was read from
	refused [2]fs.FileInfo // the files that could not be loaded, so that not every handshake tries and logs again
}

// expiryWarning is how long before its expiry a certificate causes warnings, at each load and once a day.
const expiryWarning = 14 * 24 * time.Hour

// loadCertificate reads a certificate and its key. An Invalid error means that the files cannot be used.
func loadCertificate(certFlag, certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	now, err := c.look()
	if err == nil {
		err = c.read(now)
	}
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, certFlag, err)
	}
	return c, nil
}

// serverTLS returns the certificate in two files and the TLS configuration of a server with it, or nil if the settings name
// none. An Invalid error means that the files cannot be used.
func serverTLS(certFlag, certFile, keyFile string, log *slog.Logger, protocols ...string) (*certificate, *tls.Config, error) {
	if certFile == "" {
		return nil, nil, nil
	}
	c, err := loadCertificate(certFlag, certFile, keyFile, log)
	if err != nil {
		return nil, nil, err
	}
	return c, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: c.get}, nil
}

// meter adds the metric of the certificate's expiry. The use names the certificate.
func (c *certificate) meter(registry prometheus.Registerer, use string) {
	if c == nil {
		return
	}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "belfry_certificate_expiry_seconds", Help: "Seconds until a TLS certificate, or an intermediate one in its file, expires; negative: it has expired.",
		ConstLabels: prometheus.Labels{"use": use},
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refresh()
		return time.Until(c.expires).Seconds()
	}))
}

func (c *certificate) look() (now [2]fs.FileInfo, err error) {
	var errs [2]error
	now[0], errs[0] = os.Stat(c.certFile)
	now[1], errs[1] = os.Stat(c.keyFile)
	return now, errors.Join(errs[:]...)
}

func (c *certificate) read(now [2]fs.FileInfo) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current, c.seen = &pair, now
	c.expires = pair.Leaf.NotAfter
	for _, der := range pair.Certificate[1:] {
		if between, err := x509.ParseCertificate(der); err == nil && between.NotAfter.Before(c.expires) {
			c.expires = between.NotAfter
		}
	}
	c.warned = time.Time{}
	c.warn()
	return nil
}

// warn logs that the certificate has expired or will soon, at most once a day.
func (c *certificate) warn() {
	left := time.Until(c.expires)
	if left > expiryWarning || time.Since(c.warned) < 24*time.Hour {
		return
	}
	c.warned = time.Now()
	if left <= 0 {
		c.log.Warn("the TLS certificate has expired, peers refuse connections with it", "file", c.certFile, "expires_at", c.expires)
		return
	}
	c.log.Warn("the TLS certificate expires soon, then peers will refuse connections with it", "file", c.certFile, "expires_at", c.expires)
}

// get returns the certificate for a handshake.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh()
	return c.current, nil
}

// refresh reads the files again if they have changed. While they cannot be used, the last valid certificate stays, because
// tools replace the two files one after the other.
func (c *certificate) refresh() {
	now, err := c.look()
	if err == nil && (same(now, c.seen) || same(now, c.refused)) {
		c.warn()
		return
	}
	if err == nil {
		if err = c.read(now); err == nil {
			c.log.Info("the TLS certificate was replaced", "file", c.certFile)
			return
		}
		c.refused = now
	}
	c.log.Warn("cannot reload the TLS certificate, keeping the previous one", "file", c.certFile, "err", err)
}

func same(a, b [2]fs.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil || !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// tlsListener is a listener with TLS. Like its TCP listener, it is lendable.
type tlsListener struct {
	*net.TCPListener
	config      *tls.Config
	certificate *certificate
}

func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(c, l.config), nil
}

// urlOf returns the URL of a listener, for people on this machine: one that listens on all addresses is at 127.0.0.1, too.
func urlOf(ln net.Listener) string {
	u := url.URL{Scheme: "http", Host: ln.Addr().String()}
	if _, ok := ln.(*tlsListener); ok {
		u.Scheme = "https"
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return u.String()
}

// meterListener adds the metric of a listener's certificate, if it has one.
func meterListener(registry prometheus.Registerer, ln net.Listener) {
	if l, ok := ln.(*tlsListener); ok {
		l.certificate.meter(registry, "console")
	}
}

// natsTLS checks the TLS settings of NATS, meters the client certificate and returns the options. A process calls it once.
func (p *process) natsTLS(c config.NATSTLS) ([]nats.Option, error) {
	if c.NATSCA != "" {
		pem, err := os.ReadFile(c.NATSCA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = errors.New("there is no certificate in " + c.NATSCA)
		}
		if err != nil {
			return nil, domain.WrapError(domain.Invalid, "--nats-ca", err)
		}
	}
	if c.NATSCert != "" {
		client, err := loadCertificate("--nats-cert", c.NATSCert, c.NATSKey, p.log)
		if err != nil {
			return nil, err
		}
		client.meter(p.registry, "nats_client")
	}
	return natsTLSOptions(c), nil
}

// natsTLSOptions returns the NATS options for TLS settings that were checked. The client reads the files again for each
// connection.
func natsTLSOptions(c config.NATSTLS) []nats.Option {
	var options []nats.Option
	if c.NATSCA != "" {
		options = append(options, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		options = append(options, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	return options
}
