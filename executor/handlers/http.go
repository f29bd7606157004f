package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor"
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

// HTTP sends one request. Its param is a JSON object:
//
//	url      required, http or https
//	method   default GET, or POST with a body
//	headers  an object of strings
//	body     a string, sent unchanged, or any other JSON, sent as application/json
//	timeout  a duration such as "10s"; the job's timeout applies as well
//	expect   a status code, "200-299", or a list of these; default 200-299
//
// HTTP writes the start of the response into the log. Up to executor.MaxOutput bytes of the response become the output.
// An unexpected status is an error. If that response has a Retry-After header, the next attempt waits for the time in
// the header, at most 24 hours.
func HTTP(ctx context.Context, run executor.Run) error {
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
	req, err := p.build(ctx)
	if err != nil {
		return executor.Permanent(err)
	}
	// Each run has its own transport, so that runs share no state.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
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

func (p request) build(ctx context.Context) (*http.Request, error) {
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
