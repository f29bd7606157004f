package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// request is the parsed param of HTTP.
type request struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    body              `json:"body"`
	Timeout string            `json:"timeout"`
	Expect  expect            `json:"expect"`
}

// loggedBody is the maximum part of a response in the run's log, in bytes.
const loggedBody = 4 << 10

// HTTPOptions limits the addresses to which the handler http connects. Link-local addresses and those of cloud metadata
// services are always denied. The address of each connection is checked when it is made, so names and redirects cannot
// evade the limits. The zero value allows all other addresses.
type HTTPOptions struct {
	// DenyPrivate denies this machine and private networks.
	DenyPrivate bool
	// Allow holds exceptions from DenyPrivate. If it has any, private addresses are denied even without DenyPrivate.
	Allow []netip.Prefix
	// Proxy returns the proxy for a request, as http.ProxyFromEnvironment does. Nil means no proxy, whatever the
	// environment. With a proxy, the handler can check only the proxy's address and the addresses that URLs contain. The
	// proxy must deny all others itself.
	Proxy func(*http.Request) (*url.URL, error)
	// Resolver resolves host names. Default: net.DefaultResolver.
	Resolver *net.Resolver
}

// HTTP is the handler of NewHTTP with the zero HTTPOptions.
func HTTP(ctx context.Context, run executor.Run) error { return HTTPOptions{}.handle(ctx, run) }

// NewHTTP returns a handler that sends one request. Its param is a JSON object:
//
//	url      required, http or https
//	method   default GET, or POST with a body
//	headers  an object of strings
//	body     a string, sent unchanged, or any other JSON, sent as application/json
//	timeout  a duration such as "10s"; the job's timeout applies as well
//	expect   a status code, "200-299", or a list of these; default 200-299
//
// The request has the headers Belfry-Run-Id, Belfry-Attempt and Idempotency-Key, unless the param has headers of these
// names. The key is the run's id, which is the same for each attempt. A server that supports the header therefore performs
// the request only once, even if an attempt received no response. If the run is traced, the request also has the header
// traceparent, with the span of the attempt.
//
// The handler writes the start of the response into the log. Up to executor.MaxOutput bytes of the response become the
// output. An unexpected status is an error. If that response has a Retry-After header, the next attempt waits for the
// time in the header, at most 24 hours. An address that the options deny is a permanent error.
func NewHTTP(o HTTPOptions) executor.HandlerFunc { return o.handle }

func (o HTTPOptions) handle(ctx context.Context, run executor.Run) error {
	var p request
	if err := decodeParam(run.Param(), &p); err != nil {
		return executor.Permanent(err)
	}
	if p.Timeout != "" {
		d, err := time.ParseDuration(p.Timeout)
		if err != nil || d <= 0 {
			return executor.Permanent(fmt.Errorf(`param: timeout %.50q is not a duration such as "10s"`, p.Timeout))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	req, err := p.build(ctx, run)
	if err != nil {
		return executor.Permanent(err)
	}
	begin := time.Now()
	resp, err := o.client().Do(req)
	var forbidden *forbiddenError
	switch {
	case errors.As(err, &forbidden):
		return executor.Permanent(forbidden)
	case err != nil:
		return redacted(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, executor.MaxOutput))
	run.Log().Info("response", "status", resp.StatusCode, "bytes", len(text), "took", time.Since(begin).Round(time.Millisecond))
	if len(text) > 0 {
		run.Log().Info(strings.ToValidUTF8(string(text[:min(len(text), loggedBody)]), "\uFFFD"))
	}
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if err := run.SetOutput(fit(string(text))); err != nil {
		return err
	}
	if p.Expect.takes(resp.StatusCode) {
		return nil
	}
	err = fmt.Errorf("the response is %s, expected %s", resp.Status, p.Expect)
	if d, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
		return executor.RetryAfter(err, d)
	}
	return err
}

// client returns a client for one run, so that runs share no state.
func (o HTTPOptions) client() *http.Client {
	dialer := &net.Dialer{Resolver: o.Resolver, Control: o.control}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	if o.Proxy != nil {
		transport.Proxy = func(req *http.Request) (*url.URL, error) {
			if a, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
				if err := o.check(a); err != nil {
					return nil, err
				}
			}
			return o.Proxy(req)
		}
	}
	return &http.Client{Transport: transport}
}

func (p request) build(ctx context.Context, run executor.Run) (*http.Request, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, errors.New("param: url cannot be parsed")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("param: url must begin with http:// or https:// and name a host")
	}
	method := strings.ToUpper(p.Method)
	switch {
	case method == "" && p.Body.text == "":
		method = http.MethodGet
	case method == "":
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, p.URL, strings.NewReader(p.Body.text))
	if err != nil {
		return nil, fmt.Errorf("param: %w", err)
	}
	req.Header.Set("User-Agent", "belfry")
	req.Header.Set("Belfry-Run-Id", run.ID())
	req.Header.Set("Belfry-Attempt", strconv.Itoa(run.Attempt()))
	req.Header.Set("Idempotency-Key", run.ID())
	if t := run.Label(wire.LabelTraceparent); t != "" {
		req.Header.Set("Traceparent", t)
	}
	if p.Body.json {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range p.Headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	return req, nil
}

// redacted removes the URL from the client's error, because it may contain a password.
func redacted(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// fit replaces invalid bytes and cuts s to the maximum size of an output, because a replacement is longer than an
// invalid byte.
func fit(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > executor.MaxOutput {
		s = strings.ToValidUTF8(s[:executor.MaxOutput], "")
	}
	return s
}

// retryAfter parses the header's seconds or date. The result is at most 24 hours.
func retryAfter(header string) (time.Duration, bool) {
	d := time.Duration(-1)
	if seconds, err := strconv.Atoi(header); err == nil {
		d = time.Duration(min(seconds, 86_400)) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = time.Until(at)
	}
	return min(d, 24*time.Hour), d > 0
}

// body is a string, or JSON that is sent as JSON.
type body struct {
	text string
	json bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *body) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if json.Unmarshal(data, &b.text) == nil {
		return nil
	}
	b.text, b.json = string(data), true
	return nil
}

// expect is a set of status codes, stored as ranges.
type expect []codes

type codes struct{ from, to int }

// UnmarshalJSON implements json.Unmarshaler.
func (e *expect) UnmarshalJSON(data []byte) error {
	var list []any
	var one any
	if json.Unmarshal(data, &list) != nil {
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		list = []any{one}
	}
	for _, v := range list {
		c, ok := parseCodes(v)
		if !ok {
			return fmt.Errorf(`expect: %v is neither a status code nor a range such as "200-299"`, v)
		}
		*e = append(*e, c)
	}
	return nil
}

func parseCodes(v any) (c codes, ok bool) {
	var err1, err2 error
	switch v := v.(type) {
	case float64:
		c = codes{int(v), int(v)}
		ok = float64(c.from) == v
	case string:
		from, to, isRange := strings.Cut(v, "-")
		if !isRange {
			to = from
		}
		c.from, err1 = strconv.Atoi(strings.TrimSpace(from))
		c.to, err2 = strconv.Atoi(strings.TrimSpace(to))
		ok = err1 == nil && err2 == nil
	}
	return c, ok && c.from >= 100 && c.from <= c.to && c.to <= 599
}

func (e expect) takes(status int) bool {
	if len(e) == 0 {
		return status >= 200 && status <= 299
	}
	for _, c := range e {
		if status >= c.from && status <= c.to {
			return true
		}
	}
	return false
}

func (e expect) String() string {
	if len(e) == 0 {
		return "200-299"
	}
	parts := make([]string, len(e))
	for i, c := range e {
		if parts[i] = strconv.Itoa(c.from); c.to != c.from {
			parts[i] += "-" + strconv.Itoa(c.to)
		}
	}
	return strings.Join(parts, ", ")
}
