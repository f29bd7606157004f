package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/nats-io/nats.go"

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
	seen    [2]fs.FileInfo // the files that current was read from
	refused [2]fs.FileInfo // the files that could not be loaded, so that not every handshake tries and logs again
}

// serverTLS returns the TLS configuration of a server with the certificate in two files, or nil if the settings name none. An
// Invalid error means that the files cannot be used.
func serverTLS(certFlag, certFile, keyFile string, log *slog.Logger, protocols ...string) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	now, err := c.look()
	if err == nil {
		err = c.read(now)
	}
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, certFlag, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: c.get}, nil
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
	return nil
}

// get returns the certificate for a handshake. While the files cannot be used, it returns the last valid certificate, because
// tools replace the two files one after the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.look()
	if err == nil && (same(now, c.seen) || same(now, c.refused)) {
		return c.current, nil
	}
	if err == nil {
		if err = c.read(now); err == nil {
			c.log.Info("the TLS certificate was replaced", "file", c.certFile)
			return c.current, nil
		}
		c.refused = now
	}
	c.log.Warn("cannot reload the TLS certificate, keeping the previous one", "file", c.certFile, "err", err)
	return c.current, nil
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
	config *tls.Config
}

func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(c, l.config), nil
}

// scheme returns the scheme of a listener's URL.
func scheme(ln net.Listener) string {
	if _, ok := ln.(*tlsListener); ok {
		return "https://"
	}
	return "http://"
}

// natsTLS returns the NATS options for the TLS settings. The client reads the files again for each connection.
func natsTLS(c config.NATSTLS) ([]nats.Option, error) {
	var options []nats.Option
	if c.NATSCA != "" {
		pem, err := os.ReadFile(c.NATSCA)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			err = errors.New("there is no certificate in " + c.NATSCA)
		}
		if err != nil {
			return nil, domain.WrapError(domain.Invalid, "--nats-ca", err)
		}
		options = append(options, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		if _, err := tls.LoadX509KeyPair(c.NATSCert, c.NATSKey); err != nil {
			return nil, domain.WrapError(domain.Invalid, "--nats-cert", err)
		}
		options = append(options, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	return options, nil
}
