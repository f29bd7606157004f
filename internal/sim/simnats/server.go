package simnats

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Faults decides the faults of the network. The server calls it with its mutex locked, so it must not call the server.
type Faults interface {
	// Delay returns how long a chunk of bytes takes on a link in one direction.
	Delay(link string) time.Duration
	// Lose reports whether a message to a client, or an acknowledgement from a client, is lost.
	Lose(link, subject string) bool
}

// Message is a message that a Server passes to its observer.
type Message struct {
	At       time.Time
	From, To string // names of links; To is "" if a stream stored the message
	Subject  string
	Data     []byte
	Lost     bool
}

// Server is the simulated server. Everything in it is guarded by mu.
type Server struct {
	faults  Faults
	observe func(Message)

	mu       sync.Mutex
	up       bool
	ended    bool
	lastConn int
	conns    map[*conn]bool
	subs     map[*sub]bool
	streams  map[string]*stream
}

type sub struct {
	c       *conn
	sid     string
	subject string
	tokens  []string
	max     int // messages after which the subscription ends; 0 means no limit
	got     int
}

// New returns a running server without streams. It calls observe, if not nil, for every message with its mutex locked.
func New(f Faults, observe func(Message)) *Server {
	if observe == nil {
		observe = func(Message) {}
	}
	s := &Server{
		faults: f, observe: observe, up: true, conns: make(map[*conn]bool), subs: make(map[*sub]bool),
		streams: make(map[string]*stream),
	}
	s.sweep()
	return s
}

// Stop ends every connection and refuses new ones. Streams and durable consumers stay, push consumers do not.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = false
	for c := range s.conns {
		c.drop()
	}
}

// Start accepts connections again. With wipe, the server loses its storage.
func (s *Server) Start(wipe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	if wipe {
		s.streams = make(map[string]*stream)
	}
}

// Close ends the server. It cannot be started again.
func (s *Server) Close() {
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Direct stores a message as if a client without a link had published it, if NATS is up.
func (s *Server) Direct(subject string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		s.publish(msg{subject: subject, data: data, from: "mallory", sure: true})
	}
}

// Stored returns how many messages a stream holds.
func (s *Server) Stored(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[name]; st != nil {
		return len(st.msgs)
	}
	return 0
}

const sweepEvery = 50 * time.Millisecond

// sweep does the periodic work: maximum ages, missing acknowledgements, expired requests, heartbeats.
func (s *Server) sweep() {
	time.AfterFunc(sweepEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			return
		}
		if s.up {
			now := time.Now()
			for _, st := range s.streams {
				st.sweep(now)
			}
		}
		s.sweep()
	})
}

func info(id int) string {
	return fmt.Sprintf(`INFO {"server_id":"SIM","server_name":"sim","version":"2.15.2","proto":1,"go":"go","host":"127.0.0.1",`+
		`"port":4222,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":%d,"client_ip":"127.0.0.1"}`+"\r\n", id)
}

// receive processes bytes of a client.
func (c *conn) receive(data []byte) {
	c.partial = append(c.partial, data...)
	for !c.gone {
		n := c.operation(c.partial)
		if n == 0 {
			return
		}
		c.partial = c.partial[n:]
	}
}

// operation executes the first operation in b and returns its length, or 0 if b does not contain a whole one.
func (c *conn) operation(b []byte) int {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return 0
	}
	line := string(b[:end])
	n := end + 2
	verb, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	switch strings.ToUpper(verb) {
	case "PUB", "HPUB":
		size, err := strconv.Atoi(args[len(args)-1])
		if err != nil {
			panic("simnats: " + line)
		}
		if len(b) < n+size+2 {
			return 0
		}
		m := msg{subject: args[0], from: c.link.Name, data: bytes.Clone(b[n : n+size])}
		args = args[1 : len(args)-1]
		if strings.EqualFold(verb, "HPUB") {
			head, err := strconv.Atoi(args[len(args)-1])
			if err != nil {
				panic("simnats: " + line)
			}
			m.header, m.data = m.data[:head:head], m.data[head:]
			args = args[:len(args)-1]
		}
		if len(args) > 0 {
			m.reply = args[0]
		}
		c.s.publish(m)
		return n + size + 2
	case "SUB":
		u := &sub{c: c, sid: args[len(args)-1], subject: args[0], tokens: strings.Split(args[0], ".")}
		c.subs[u.sid] = u
		c.s.subs[u] = true
	case "UNSUB":
		u := c.subs[args[0]]
		if u == nil {
			break
		}
		if len(args) == 2 {
			if most, err := strconv.Atoi(args[1]); err == nil && most > u.got {
				u.max = most
				break
			}
		}
		c.unsubscribe(args[0])
	case "PING":
		if !c.open { // the first PING ends the handshake
			c.open = true
			c.arrive([]byte("PONG\r\n"))
			break
		}
		c.down.send([]byte("PONG\r\n"))
	case "PONG", "CONNECT":
	default:
		panic("simnats: unknown operation " + line)
	}
	return n
}

func (c *conn) unsubscribe(sid string) {
	if u := c.subs[sid]; u != nil {
		delete(c.subs, sid)
		delete(c.s.subs, u)
	}
}

type msg struct {
	subject, reply string
	header, data   []byte
	from           string // link
	sure           bool   // never lost
}

// publish routes a client's message: to the API, into a stream, to subscribers.
func (s *Server) publish(m msg) {
	switch {
	case strings.HasPrefix(m.subject, "$JS.API."):
		// Only the request may be lost. While nats.go waits for the answer about a created consumer, it holds a mutex that
		// the first messages need.
		lost := s.faults.Lose(m.from, m.subject)
		s.observe(Message{At: time.Now(), From: m.from, Subject: m.subject, Data: m.data, Lost: lost})
		if !lost {
			s.api(m)
		}
		return
	case strings.HasPrefix(m.subject, "$JS.ACK."):
		lost := s.faults.Lose(m.from, m.subject)
		s.observe(Message{At: time.Now(), From: m.from, Subject: m.subject, Data: m.data, Lost: lost})
		if !lost {
			s.acknowledge(m)
		}
		return
	}
	stored := false
	for _, st := range s.streams {
		if st.takes(m.subject) {
			stored = true
			s.observe(Message{At: time.Now(), From: m.from, Subject: m.subject, Data: m.data})
			answer := st.publish(m)
			if m.reply != "" {
				s.send(msg{subject: m.reply, data: answer, from: "nats"})
			}
		}
	}
	if s.send(m) == 0 && !stored && m.reply != "" {
		s.send(msg{subject: m.reply, header: []byte("NATS/1.0 503\r\n\r\n"), from: "nats"})
	}
}

// send sends a message to the subscribers of its subject and returns their number.
func (s *Server) send(m msg) int { return s.deliver(m.subject, m) }

// deliver sends a message to the subscribers of a subject. If a consumer delivers it, this is not the message's own subject.
func (s *Server) deliver(to string, m msg) int {
	n := 0
	for u := range s.subs {
		if !matches(u.tokens, to) {
			continue
		}
		n++
		lost := !m.sure && s.faults.Lose(u.c.link.Name, m.subject)
		s.observe(Message{At: time.Now(), From: m.from, To: u.c.link.Name, Subject: m.subject, Data: m.data, Lost: lost})
		if !lost {
			u.c.down.send(u.frame(m))
		}
		if u.got++; u.max > 0 && u.got >= u.max {
			u.c.unsubscribe(u.sid)
		}
	}
	return n
}

func (s *Server) interest(subject string) bool {
	for u := range s.subs {
		if matches(u.tokens, subject) {
			return true
		}
	}
	return false
}

// frame returns the protocol line and the payload for a subscriber.
func (u *sub) frame(m msg) []byte {
	var b bytes.Buffer
	b.Grow(len(m.subject) + len(m.reply) + len(m.header) + len(m.data) + 48)
	verb := "MSG"
	if len(m.header) > 0 {
		verb = "HMSG"
	}
	b.WriteString(verb + " " + m.subject + " " + u.sid + " ")
	if m.reply != "" {
		b.WriteString(m.reply + " ")
	}
	if len(m.header) > 0 {
		b.WriteString(strconv.Itoa(len(m.header)) + " ")
	}
	b.WriteString(strconv.Itoa(len(m.header)+len(m.data)) + "\r\n")
	b.Write(m.header)
	b.Write(m.data)
	b.WriteString("\r\n")
	return b.Bytes()
}

// matches reports whether a subject matches a pattern with * and >.
func matches(pattern []string, subject string) bool {
	for i, p := range pattern {
		if p == ">" {
			return subject != ""
		}
		token, rest, more := strings.Cut(subject, ".")
		if p != "*" && p != token {
			return false
		}
		subject = rest
		if !more {
			return i == len(pattern)-1
		}
	}
	return false
}
