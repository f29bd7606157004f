package simnats

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stream is a JetStream stream.
type stream struct {
	s         *Server
	name      string
	raw       json.RawMessage // the configuration as the client sent it
	config    streamConfig
	patterns  [][]string
	created   time.Time
	msgs      []stored // by sequence
	last      uint64
	consumers map[string]*consumer
}

type streamConfig struct {
	Name       string        `json:"name"`
	Subjects   []string      `json:"subjects"`
	Retention  string        `json:"retention"`
	MaxAge     time.Duration `json:"max_age"`
	PerSubject int           `json:"max_msgs_per_subject"`
	Discard    bool          `json:"discard_new_per_subject"`
}

type stored struct {
	msg
	seq uint64
	at  time.Time
}

func (st *stream) configure(raw json.RawMessage) error {
	var c streamConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	st.raw, st.config, st.patterns = raw, c, nil
	for _, s := range c.Subjects {
		st.patterns = append(st.patterns, strings.Split(s, "."))
	}
	return nil
}

func (st *stream) takes(subject string) bool {
	return slices.ContainsFunc(st.patterns, func(p []string) bool { return matches(p, subject) })
}

// latest returns the newest message on a subject.
func (st *stream) latest(subject string) (stored, bool) {
	for i := len(st.msgs) - 1; i >= 0; i-- {
		if st.msgs[i].subject == subject {
			return st.msgs[i], true
		}
	}
	return stored{}, false
}

// following returns the first message on a subject with at least the given sequence.
func (st *stream) following(subject string, seq uint64) (stored, bool) {
	for i, _ := st.find(seq); i < len(st.msgs); i++ {
		if st.msgs[i].subject == subject {
			return st.msgs[i], true
		}
	}
	return stored{}, false
}

// publish stores a message and returns the acknowledgement.
func (st *stream) publish(m msg) []byte {
	if expected, ok := header(m.header, "Nats-Expected-Last-Subject-Sequence"); ok {
		last, _ := st.latest(m.subject)
		if expected != strconv.FormatUint(last.seq, 10) {
			return fmt.Appendf(nil, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: %d"},"stream":"%s","seq":0}`, last.seq, st.name)
		}
	}
	if st.config.PerSubject == 1 {
		st.msgs = slices.DeleteFunc(st.msgs, func(o stored) bool { return o.subject == m.subject })
	}
	st.last++
	m.reply = ""
	st.msgs = append(st.msgs, stored{m, st.last, time.Now()})
	for _, c := range st.consumers {
		c.flow()
	}
	return fmt.Appendf(nil, `{"stream":"%s","seq":%d}`, st.name, st.last)
}

// header returns the value of a message's header.
func header(h []byte, name string) (string, bool) {
	for line := range strings.SplitSeq(string(h), "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

func (st *stream) remove(seq uint64) {
	if i, ok := st.find(seq); ok {
		st.msgs = slices.Delete(st.msgs, i, i+1)
	}
}

func (st *stream) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(st.msgs, seq, func(o stored, seq uint64) int {
		switch {
		case o.seq < seq:
			return -1
		case o.seq > seq:
			return 1
		}
		return 0
	})
}

func (st *stream) sweep(now time.Time) {
	if st.config.MaxAge > 0 {
		for len(st.msgs) > 0 && now.Sub(st.msgs[0].at) > st.config.MaxAge {
			st.msgs = st.msgs[1:]
		}
	}
	for name, c := range st.consumers {
		if c.config.DeliverSubject != "" && !st.s.interest(c.config.DeliverSubject) {
			delete(st.consumers, name)
			continue
		}
		c.sweep(now)
	}
}

// consumer is a durable pull consumer, or an ephemeral push consumer.
type consumer struct {
	st        *stream
	name      string
	raw       json.RawMessage
	config    consumerConfig
	filter    []string
	created   time.Time
	next      uint64 // the first stream sequence not delivered yet
	delivered uint64 // consumer sequence
	pending   map[uint64]*delivery
	pulls     []*pull
	beat      time.Time // the last message or heartbeat of a push consumer
}

type consumerConfig struct {
	Durable        string        `json:"durable_name"`
	Name           string        `json:"name"`
	DeliverSubject string        `json:"deliver_subject"`
	Filter         string        `json:"filter_subject"`
	AckPolicy      string        `json:"ack_policy"`
	AckWait        time.Duration `json:"ack_wait"`
	Heartbeat      time.Duration `json:"idle_heartbeat"`
}

// delivery is a message that is not acknowledged yet.
type delivery struct {
	times int
	again time.Time // when it is delivered again
}

// pull is a request of a client for messages.
type pull struct {
	reply   string
	left    int
	bytes   int
	expires time.Time
	every   time.Duration
	beat    time.Time
}

func (c *consumer) wants(m *stored) bool { return len(c.filter) == 0 || matches(c.filter, m.subject) }

// waiting counts the messages that were never delivered.
func (c *consumer) waiting() int {
	n := 0
	i, _ := c.st.find(c.next)
	for ; i < len(c.st.msgs); i++ {
		if c.wants(&c.st.msgs[i]) {
			n++
		}
	}
	return n
}

// flow delivers messages while there are messages and a receiver.
func (c *consumer) flow() {
	now := time.Now()
	for {
		to, ok := c.receiver(now)
		if !ok {
			return
		}
		m, times, ok := c.pick(now)
		if !ok {
			return
		}
		c.delivered++
		if c.config.AckPolicy != "none" {
			c.pending[m.seq] = &delivery{times: times, again: now.Add(c.config.AckWait)}
		}
		out := m.msg
		out.from = "nats"
		out.reply = fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.%d", c.st.name, c.name, times, m.seq, c.delivered, m.at.UnixNano(), c.waiting())
		c.st.s.deliver(to, out)
	}
}

// receiver returns the subject to which the next message is delivered.
func (c *consumer) receiver(now time.Time) (string, bool) {
	if c.config.DeliverSubject != "" {
		c.beat = now
		return c.config.DeliverSubject, true
	}
	for len(c.pulls) > 0 {
		p := c.pulls[0]
		if p.left == 0 || !p.expires.After(now) || !c.st.s.interest(p.reply) {
			c.pulls = c.pulls[1:]
			continue
		}
		return p.reply, true
	}
	return "", false
}

// pick returns the next message: one whose acknowledgement is overdue, or else the first that was never delivered.
func (c *consumer) pick(now time.Time) (m stored, times int, ok bool) {
	for seq, d := range c.pending {
		if d.again.After(now) || (ok && seq > m.seq) {
			continue
		}
		i, there := c.st.find(seq)
		if !there {
			delete(c.pending, seq)
			continue
		}
		m, times, ok = c.st.msgs[i], d.times+1, true
	}
	if !ok {
		i, _ := c.st.find(c.next)
		for ; i < len(c.st.msgs) && !ok; i++ {
			c.next = c.st.msgs[i].seq + 1
			if c.wants(&c.st.msgs[i]) {
				m, times, ok = c.st.msgs[i], 1, true
			}
		}
	}
	if ok && c.config.DeliverSubject == "" {
		p := c.pulls[0]
		p.left--
		p.bytes -= len(m.data)
		p.beat = now
	}
	return m, times, ok
}

func (c *consumer) sweep(now time.Time) {
	if c.config.DeliverSubject != "" {
		if c.config.Heartbeat > 0 && now.Sub(c.beat) >= c.config.Heartbeat {
			c.beat = now
			c.st.s.send(msg{subject: c.config.DeliverSubject, from: "nats", header: fmt.Appendf(nil,
				"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n", c.delivered, c.next-1)})
		}
		return
	}
	kept := c.pulls[:0]
	for _, p := range c.pulls {
		switch {
		case p.left == 0 || !c.st.s.interest(p.reply):
			continue
		case !p.expires.After(now):
			c.st.s.send(msg{subject: p.reply, from: "nats", header: fmt.Appendf(nil,
				"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n", p.left, max(p.bytes, 0))})
			continue
		case p.every > 0 && now.Sub(p.beat) >= p.every:
			p.beat = now
			c.st.s.send(msg{subject: p.reply, from: "nats", header: []byte("NATS/1.0 100 Idle Heartbeat\r\n\r\n")})
		}
		kept = append(kept, p)
	}
	c.pulls = kept
	c.flow()
}

// acknowledge processes an acknowledgement of a client.
func (s *Server) acknowledge(m msg) {
	t := strings.Split(m.subject, ".") // $JS.ACK.stream.consumer.times.seq.…
	st := s.streams[t[2]]
	if st == nil || st.consumers[t[3]] == nil {
		return
	}
	c := st.consumers[t[3]]
	seq, err := strconv.ParseUint(t[5], 10, 64)
	d := c.pending[seq]
	if err != nil || d == nil {
		return
	}
	body := string(m.data)
	switch {
	case body == "" || body == "+ACK":
		delete(c.pending, seq)
		if st.config.Retention == "workqueue" {
			st.remove(seq)
		}
	case strings.HasPrefix(body, "-NAK"):
		var opts struct {
			Delay time.Duration `json:"delay"`
		}
		if _, rest, ok := strings.Cut(body, " "); ok {
			_ = json.Unmarshal([]byte(rest), &opts) // without a delay, the message is delivered again at once
		}
		d.again = time.Now().Add(opts.Delay)
	case body == "+WPI":
		d.again = time.Now().Add(c.config.AckWait)
	default:
		panic("simnats: acknowledgement " + body)
	}
}
