package inbound

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// patience ends a test that hangs.
const patience = 3 * time.Minute

// dial connects from a source address.
func dial(t *testing.T, source, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// closed waits until the other side closes a connection.
func closed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Errorf("%s: the connection stays open", what)
		}
	}
}

// A source takes all the connections that it may have. Other sources still get answers, and connections whose headers do not come are closed.
func TestManyConnections(t *testing.T) {
	address := serve(t, &backend{}, func(s *Server) { s.header = 2 * time.Second })
	var flood []net.Conn
	for range maxSourceConns {
		c := dial(t, "127.0.0.2", address)
		fmt.Fprint(c, "POST /api/callback HTTP/1.1\r\nHost: x\r\n")
		flood = append(flood, c)
	}
	closed(t, "beyond the limit of a source", dial(t, "127.0.0.2", address))
	if code, text := post(t, "http://"+address+"/api/callback", "other", strings.NewReader(`[{"logId":1,"handleCode":200}]`)); code != 200 {
		t.Errorf("a callback from another source: %d %s", code, text)
	}
	for _, c := range flood {
		closed(t, "without the end of its headers", c)
	}
}

// A client that sends requests and never reads the answers is given up.
func TestSlowReader(t *testing.T) {
	address := serve(t, &backend{}, func(s *Server) { s.small = 300 * time.Millisecond })
	c := dial(t, "127.0.0.1", address)
	request := []byte(strings.Repeat("GET /other HTTP/1.1\r\nHost: x\r\n\r\n", 1000))
	for {
		if _, err := c.Write(request); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Error("the server still waits for the client to read")
			}
			return
		}
	}
}

// While clients with the token of some groups send as many callbacks as they can, and others guess tokens, each callback of another group is stored.
func TestFlood(t *testing.T) {
	url := "http://" + serve(t, &backend{forgets: true}) + "/api/callback"
	var item bytes.Buffer
	fmt.Fprintf(&item, `{"logId":1,"handleCode":500,"handleMsg":%q}`, strings.Repeat("x", 20_000))
	body := "[" + strings.TrimSuffix(strings.Repeat(item.String()+",", 50), ",") + "]"
	ends := make(chan struct{})
	var floods sync.WaitGroup
	var stored, refused atomic.Int64
	send := func(token string) {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for {
			select {
			case <-ends:
				return
			default:
			}
			r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				panic(err)
			}
			r.Header.Set(protocol.HeaderToken, token)
			response, err := client.Do(r)
			if err != nil {
				continue // the server closes a connection whose body it does not read
			}
			answer, _ := io.ReadAll(response.Body) // of a connection that is closed, an empty one
			response.Body.Close()
			if bytes.Contains(answer, []byte(`"code":200`)) {
				stored.Add(1)
			} else {
				refused.Add(1)
			}
		}
	}
	for i := range 40 {
		floods.Go(func() { send([]string{"secret", "secret", "secret", "wrong"}[i%4]) })
	}
	n := 0
	for ; n < 50 || stored.Load() < 20 || refused.Load() < 20; n++ {
		if code, text := post(t, url, "other", strings.NewReader(`[{"logId":2,"handleCode":200}]`)); code != 200 {
			t.Errorf("a callback during the flood: %d %s", code, text)
		}
	}
	close(ends)
	floods.Wait()
	t.Logf("%d callbacks of another group, %d bodies of the flood were stored, %d were refused", n, stored.Load(), refused.Load())
}

// Of many refused callers, the log has one.
func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	url := "http://" + serve(t, &backend{}, func(s *Server) { s.log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 5 {
		post(t, url+"/api/registry", "wrong", registration("http://10.0.0.5:9999/"))
	}
	if got := log.String(); strings.Count(got, "refused an executor") != 1 || !strings.Contains(got, "remote=127.0.0.1") {
		t.Errorf("the log:\n%s", got)
	}
}
