package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/belfryhq/belfry/internal/config"
)

type healthCmd struct{ config.Health }

func (*healthCmd) Help() string {
	return "The command asks /readyz. The exit code is 0 if the role is ready. It is 1 if the role is not ready, which prints what is missing, or cannot be " +
		"reached.\n\nWithout URL, the command reads the address from the environment variables of the role. Schedulers, dispatchers and executors " +
		"serve /readyz only with BELFRY_METRICS. If both BELFRY_METRICS and BELFRY_HTTP are set, the first one that accepts connections " +
		"decides. If several roles run on a machine, pass the URL.\n\nExamples:\n\n" +
		"    belfry health\n    belfry health 127.0.0.1:9181\n    belfry health https://belfry.example.org"
}

func (c *healthCmd) Run(a *app) error {
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	urls, own := c.Candidates()
	for i, url := range urls {
		ready, err := askReady(ctx, url, own)
		switch {
		case err == nil:
			fmt.Fprintf(a.stdout, "%s\n", printable(ready))
			return nil
		case errors.Is(err, syscall.ECONNREFUSED) && i < len(urls)-1:
			continue
		case errors.Is(err, context.DeadlineExceeded) && a.ctx.Err() == nil:
			return fmt.Errorf("%s did not answer within %v", url, c.Timeout)
		case errors.Is(err, syscall.ECONNREFUSED) && own:
			return fmt.Errorf("nothing listens at %s; pass the URL of the role, or set BELFRY_METRICS or BELFRY_HTTP as the role does", strings.Join(urls, " or "))
		}
		return err
	}
	return nil
}

// maxReady bounds the part of an answer that is read.
const maxReady = 64 << 10

// askReady asks a role whether it is ready, and returns a text for people. If the role is not ready, the error says what is missing.
// If own is true, the certificate is not verified: the role is on this machine, its certificate names the host of the console, and
// the request carries no secret.
func askReady(ctx context.Context, url string, own bool) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy
	if own {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReady))
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", url, err)
	}
	said := readiness(body)
	switch answer.StatusCode {
	case http.StatusOK:
		return strings.TrimSuffix("ready; "+said, "; "), nil
	case http.StatusServiceUnavailable:
		return "", fmt.Errorf("not ready: %s", said)
	}
	return "", fmt.Errorf("%s answers %s; is it the address of a role of Belfry?", url, answer.Status)
}

// readiness returns what an answer of /readyz says about missing parts.
func readiness(body []byte) string {
	var said struct {
		Detail string          `json:"detail"` // of a problem
		Checks map[string]bool `json:"checks"` // of a console that is ready
	}
	if json.Unmarshal(body, &said) != nil {
		text := strings.TrimSpace(string(body))
		if text == "ok" {
			return ""
		}
		return text
	}
	if said.Detail != "" {
		return said.Detail
	}
	var missing []string
	for name, ok := range said.Checks {
		if !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	return "unavailable: " + strings.Join(missing, ", ")
}
