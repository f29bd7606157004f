package alert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Config contains the settings of a Sender.
type Config struct {
	// DenyPrivate forbids connections to this machine and to private networks, including connections to mail servers.
	DenyPrivate bool
	Timeout     time.Duration // limit of one delivery; 0: DefaultTimeout
	// TLS verifies servers; nil: with the system's root certificates. Tests set it to trust their test servers.
	TLS *tls.Config
	Now func() time.Time // for signatures; nil: time.Now
}

// Sender delivers messages. It is safe for concurrent use.
type Sender struct {
	Config
	dialer net.Dialer
	http   *http.Client
}

// DefaultTimeout is the default limit of one delivery.
const DefaultTimeout = 15 * time.Second

// NewSender returns a Sender.
func NewSender(c Config) *Sender {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Sender{Config: c}
	s.dialer = net.Dialer{Timeout: c.Timeout, Control: s.mayConnect}
	transport := &http.Transport{
		DialContext: s.dialer.DialContext, TLSClientConfig: c.TLS, TLSHandshakeTimeout: c.Timeout,
		MaxIdleConns: 16, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if !c.DenyPrivate {
		transport.Proxy = http.ProxyFromEnvironment // with a proxy, mayConnect would see only the proxy's address
	}
	s.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s
}

// Close closes idle connections.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Send tries to deliver a message once. The error or the server's answer is text for people and contains no secret.
func (s *Sender) Send(ctx context.Context, c *Channel, m Message) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	m = m.Bounded()
	switch c.Kind {
	case KindEmail:
		return s.mail(ctx, c, m)
	case KindWebhook:
		return s.webhook(ctx, c, m)
	case KindSlack:
		return s.slack(ctx, c, m)
	case KindDingTalk:
		return s.dingTalk(ctx, c, m)
	case KindWeCom:
		return s.weCom(ctx, c, m)
	case KindFeishu:
		return s.feishu(ctx, c, m)
	}
	return "", &permanentError{fmt.Errorf("there is no kind of channel %q", c.Kind)}
}

// Permanent reports whether a retry cannot succeed.
func Permanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// errForbidden means that the Sender does not connect to an address.
type errForbidden struct{ text string }

func (e errForbidden) Error() string { return e.text }

// mayConnect checks the resolved address when a connection is made. The host name is irrelevant.
func (s *Sender) mayConnect(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return errForbidden{"its address cannot be checked"}
	}
	a := version4(ap.Addr())
	switch {
	case a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified(), metadata[a]:
		return errForbidden{a.String() + " is an address that alerts are never sent to"}
	case s.DenyPrivate && (a.IsPrivate() || a.IsLoopback() || shared.Contains(a) || localNAT64.Contains(a)):
		return errForbidden{a.String() + " is a private address, and --alert-deny-private forbids those"}
	}
	return nil
}

var (
	shared = netip.MustParsePrefix("100.64.0.0/10") // carrier-grade NAT
	nat64  = netip.MustParsePrefix("64:ff9b::/96")  // its last four bytes are an IPv4 address
	sixTo4 = netip.MustParsePrefix("2002::/16")     // the four bytes after the prefix are an IPv4 address
	// localNAT64 maps to IPv4 addresses in a way that the local network defines.
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	// metadata contains the addresses of cloud metadata services outside the link-local range.
	metadata = map[netip.Addr]bool{netip.MustParseAddr("fd00:ec2::254"): true, netip.MustParseAddr("100.100.100.200"): true}
)

// version4 returns the IPv4 address that an IPv6 address maps to, or the address itself.
func version4(a netip.Addr) netip.Addr {
	bytes := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[12:16]))
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return a.Unmap()
}

// maxAnswer is the number of bytes that are read from a response.
const maxAnswer = 4 << 10

// post sends a JSON body and returns the beginning of the response. Errors contain no part of the URL.
func (s *Sender) post(ctx context.Context, target string, body []byte, header http.Header) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(string(body)))
	if err != nil {
		return "", &permanentError{errors.New("the URL is not valid")}
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "Belfry")
	resp, err := s.http.Do(r)
	if err != nil {
		return "", netError(ctx, err)
	}
	defer resp.Body.Close()
	read, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) //nolint:errcheck // the status is sufficient
	answer := string(read)
	if resp.StatusCode/100 == 2 {
		return answer, nil
	}
	err = fmt.Errorf("it answered %d %s", resp.StatusCode, tidy(answer, maxFieldRunes))
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests || code >= 500:
		return "", err
	}
	return "", &permanentError{err}
}

// netError returns a network error without the URL.
func netError(ctx context.Context, err error) error {
	var forbidden errForbidden
	if errors.As(err, &forbidden) {
		return &permanentError{forbidden}
	}
	if ctx.Err() != nil {
		return errors.New("it took too long to answer")
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return errors.New("its host cannot be found")
	}
	return fmt.Errorf("it cannot be reached: %s", tidy(err.Error(), maxFieldRunes))
}
