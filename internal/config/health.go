package config

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Health holds the settings of `belfry health`. The addresses have the flags and variables of the roles, so that the command finds
// the role of this machine in the environment that the role has.
type Health struct {
	URL     string        `arg:"" optional:"" name:"url" placeholder:"URL" help:"URL of the role, with or without /readyz, or its HOST:PORT. By default the address in the settings below."`
	Metrics string        `name:"metrics" env:"BELFRY_METRICS" placeholder:"HOST:PORT" help:"Address of a scheduler, dispatcher or executor."`
	HTTP    string        `name:"http" env:"BELFRY_HTTP" default:"127.0.0.1:8080" help:"Address of a console or standalone."`
	TLSCert string        `name:"tls-cert" env:"BELFRY_TLS_CERT" placeholder:"FILE" help:"If set, the console is asked over TLS."`
	Timeout time.Duration `name:"timeout" env:"BELFRY_HEALTH_TIMEOUT" default:"3s" help:"Maximum time to wait for an answer, 10ms to 1m."`
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Health) Validate() error {
	var f domain.Faults
	between(&f, "--timeout", c.Timeout, 10*time.Millisecond, time.Minute)
	if c.URL != "" {
		if c.given() == "" {
			f.Add("url", "is neither a URL such as http://127.0.0.1:8080 nor an address such as 127.0.0.1:8080")
		}
		return f.Err("")
	}
	check := func(flag, address string) {
		checkAddress(&f, flag, address)
		if _, port, err := net.SplitHostPort(address); err == nil && port == "0" {
			f.Add(flag, "has port 0, which stands for any free port; pass the URL that the role printed")
		}
	}
	check("--http", c.HTTP)
	if c.Metrics != "" {
		check("--metrics", c.Metrics)
	}
	return f.Err("")
}

// given returns the URL of /readyz for the URL on the command line, or "" if that is not valid.
func (c Health) given() string {
	text := c.URL
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return ""
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	return u.String()
}

// Candidates returns the URLs at which this machine's role may answer. The first one that accepts connections is the role. own says
// that they are addresses of this machine, whose certificates name other hosts. Call it only after Validate.
func (c Health) Candidates() (urls []string, own bool) {
	if c.URL != "" {
		return []string{c.given()}, false
	}
	if c.Metrics != "" {
		urls = append(urls, "http://"+reachable(c.Metrics)+"/readyz")
	}
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	return append(urls, scheme+reachable(c.HTTP)+"/readyz"), true
}

// reachable returns the address at which this machine reaches a listener, which may listen on all addresses.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // a listener on [::] takes it as well
	}
	return net.JoinHostPort(host, port)
}
