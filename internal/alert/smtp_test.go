package alert_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"net"
	"strings"
	"sync"
	"testing"
)

// mailServer is a minimal SMTP server.
type mailServer struct {
	net.Listener
	tls      *tls.Config
	implicit bool
	plain    bool   // it does not offer STARTTLS
	refuse   string // its answer to a recipient
	mu       sync.Mutex
	mails    []string
	logins   []string // the credentials of each PLAIN login, and whether the connection was encrypted
}

func newMailServer(t *testing.T, config *tls.Config, edit ...func(*mailServer)) *mailServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{Listener: ln, tls: config}
	for _, e := range edit {
		e(s)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { ln.Close(); served.Wait() })
	return s
}

func (s *mailServer) port() int { return s.Addr().(*net.TCPAddr).Port }

func (s *mailServer) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.mails...)
}

func (s *mailServer) serve(conn net.Conn) {
	defer func() { conn.Close() }()
	encrypted := s.implicit
	if s.implicit {
		conn = tls.Server(conn, s.tls)
	}
	r := bufio.NewReader(conn)
	say := func(lines ...string) { conn.Write([]byte(strings.Join(lines, "\r\n") + "\r\n")) }
	say("220 mail.test ESMTP")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			answer := []string{"250-mail.test"}
			if !encrypted && !s.plain {
				answer = append(answer, "250-STARTTLS")
			}
			say(append(answer, "250 AUTH PLAIN LOGIN")...)
		case "STARTTLS":
			say("220 go ahead")
			encrypted, conn = true, tls.Server(conn, s.tls)
			r = bufio.NewReader(conn)
		case "AUTH":
			said, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if !encrypted {
				said = append(said, " in the clear"...)
			}
			s.mu.Lock()
			s.logins = append(s.logins, string(said))
			s.mu.Unlock()
			if !strings.HasSuffix(string(said), "\x00hunter2") {
				say("535 no")
				continue
			}
			say("235 welcome")
		case "RCPT":
			if s.refuse != "" {
				say(s.refuse)
				continue
			}
			say("250 ok")
		case "DATA":
			say("354 go on")
			var body strings.Builder
			for {
				l, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if l == ".\r\n" {
					break
				}
				body.WriteString(l)
			}
			s.mu.Lock()
			s.mails = append(s.mails, body.String())
			s.mu.Unlock()
			say("250 queued")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}
