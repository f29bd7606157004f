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

// Config says how channels are reached.
type Config struct {
	// DenyPrivate forbids addresses of this machine and of private networks, also to mail servers.
	DenyPrivate bool
	Timeout     time.Duration // of one try; 0: 15 s
	// TLS is how servers are verified; nil: by the machine's roots. Tests have servers of their own.
	TLS *tls.Config
	Now func() time.Time // for signatures; nil: time.Now
}

// Sender delivers. Its methods may be called by many goroutines.
type Sender struct {
	Config
	dialer net.Dialer
	http   *http.Client
}

// DefaultTimeout is how long one try may take.
const DefaultTimeout = 15 * time.Second

// NewSender makes a Sender.
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
		transport.Proxy = http.ProxyFromEnvironment // whose own address is all that could be judged then
	}
	s.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return s
}

// Close ends idle connections.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Send tries once to deliver a message. What it returns, an error or the server's answer, is for people and tells no secret.
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

// Permanent reports whether trying again cannot help.
func Permanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// errForbidden says of an address that it is not connected to.
type errForbidden struct{ text string }

func (e errForbidden) Error() string { return e.text }

// mayConnect judges the address itself, whatever name led to it, at the moment of connecting.
func (s *Sender) mayConnect(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return errForbidden{"its address cannot be judged"}
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
	shared = netip.MustParsePrefix("100.64.0.0/10") // carriers' own
	nat64  = netip.MustParsePrefix("64:ff9b::/96")  // leads to the address of version 4 in its last bytes
	sixTo4 = netip.MustParsePrefix("2002::/16")     // leads to the one after the prefix
	// localNAT64 leads to addresses of version 4 as the network at hand likes.
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	// metadata are where clouds answer with their secrets outside the link-local range.
	metadata = map[netip.Addr]bool{netip.MustParseAddr("fd00:ec2::254"): true, netip.MustParseAddr("100.100.100.200"): true}
)

// version4 returns the address of version 4 that one of version 6 leads to, else the address itself.
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

// maxAnswer is how much of an answer is read.
const maxAnswer = 4 << 10

// post sends a JSON body and returns the answer's beginning. Errors name neither the URL nor what stands in it.
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
	read, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) //nolint:errcheck // the status says enough
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

// netError says what went wrong on the way, without the URL.
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
