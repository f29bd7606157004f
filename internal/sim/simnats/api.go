package simnats

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// apiError is an error of JetStream's API.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

var (
	errStreamNotFound   = &apiError{404, 10059, "stream not found"}
	errConsumerNotFound = &apiError{404, 10014, "consumer not found"}
	errNoMessage        = &apiError{404, 10037, "no message found"}
	errBadRequest       = &apiError{400, 10003, "bad request"}
)

// api answers a request to JetStream's API.
func (s *Server) api(m msg) {
	op := strings.TrimPrefix(m.subject, "$JS.API.")
	t := strings.Split(op, ".")
	var answer any
	var fault *apiError
	switch {
	case strings.HasPrefix(op, "STREAM.CREATE.") || strings.HasPrefix(op, "STREAM.UPDATE."):
		answer, fault = s.makeStream(t[2], m.data, t[1] == "CREATE")
	case strings.HasPrefix(op, "STREAM.INFO."):
		answer, fault = s.subjects(t[2], m.data)
	case strings.HasPrefix(op, "STREAM.MSG.GET."):
		answer, fault = s.message(t[3], m.data)
	case strings.HasPrefix(op, "STREAM.PURGE."):
		answer, fault = s.purge(t[2], m.data)
	case strings.HasPrefix(op, "CONSUMER.CREATE."):
		answer, fault = s.makeConsumer(t[2], t[3], m.data)
	case strings.HasPrefix(op, "CONSUMER.INFO."):
		answer, fault = s.consumerInfo(t[2], t[3])
	case strings.HasPrefix(op, "CONSUMER.DELETE."):
		if st := s.streams[t[2]]; st != nil {
			delete(st.consumers, t[3])
		}
		answer = map[string]any{"success": true}
	case strings.HasPrefix(op, "CONSUMER.MSG.NEXT."):
		s.pull(t[3], t[4], m)
		return
	default:
		panic("simnats: unknown API request " + m.subject)
	}
	if fault != nil {
		answer = map[string]any{"error": fault}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	s.send(msg{subject: m.reply, data: body, from: "nats", sure: true})
}

func (s *Server) makeStream(name string, config []byte, create bool) (any, *apiError) {
	st := s.streams[name]
	if st == nil && !create {
		return nil, errStreamNotFound
	}
	if st == nil {
		st = &stream{s: s, name: name, created: time.Now(), consumers: make(map[string]*consumer)}
	}
	if st.configure(config) != nil {
		return nil, errBadRequest
	}
	s.streams[name] = st
	return s.streamInfo(name)
}

func (s *Server) streamInfo(name string) (any, *apiError) {
	st := s.streams[name]
	if st == nil {
		return nil, errStreamNotFound
	}
	first, size := st.last+1, 0
	if len(st.msgs) > 0 {
		first = st.msgs[0].seq
	}
	for i := range st.msgs {
		size += len(st.msgs[i].data)
	}
	return map[string]any{
		"config": st.raw, "created": st.created,
		"state": map[string]any{
			"messages": len(st.msgs), "bytes": size, "first_seq": first, "last_seq": st.last, "consumer_count": len(st.consumers),
		},
	}, nil
}

// subjects returns the information about a stream, with the number of messages on each subject that the request asks for.
func (s *Server) subjects(name string, request []byte) (any, *apiError) {
	var r struct {
		Filter string `json:"subjects_filter"`
	}
	if len(request) > 0 && json.Unmarshal(request, &r) != nil {
		return nil, errBadRequest
	}
	answer, fault := s.streamInfo(name)
	if fault != nil || r.Filter == "" {
		return answer, fault
	}
	count := make(map[string]int)
	for i := range s.streams[name].msgs {
		if subject := s.streams[name].msgs[i].subject; matches(strings.Split(r.Filter, "."), subject) {
			count[subject]++
		}
	}
	info := answer.(map[string]any)
	info["state"].(map[string]any)["subjects"] = count
	info["total"], info["offset"], info["limit"] = len(count), 0, 100_000
	return info, nil
}

func (s *Server) message(name string, request []byte) (any, *apiError) {
	var r struct {
		Last string `json:"last_by_subj"`
		Next string `json:"next_by_subj"`
		Seq  uint64 `json:"seq"`
	}
	st := s.streams[name]
	switch {
	case st == nil:
		return nil, errStreamNotFound
	case json.Unmarshal(request, &r) != nil || (r.Last == "" && r.Next == ""):
		return nil, errBadRequest
	}
	m, ok := st.latest(r.Last)
	if r.Next != "" {
		m, ok = st.following(r.Next, r.Seq)
	}
	if !ok {
		return nil, errNoMessage
	}
	return map[string]any{"message": map[string]any{
		"subject": m.subject, "seq": m.seq, "hdrs": m.header, "data": m.data, "time": m.at,
	}}, nil
}

// purge removes the messages of a subject before a sequence.
func (s *Server) purge(name string, request []byte) (any, *apiError) {
	var r struct {
		Filter string `json:"filter"`
		Seq    uint64 `json:"seq"`
	}
	st := s.streams[name]
	switch {
	case st == nil:
		return nil, errStreamNotFound
	case json.Unmarshal(request, &r) != nil || r.Filter == "":
		return nil, errBadRequest
	}
	before := len(st.msgs)
	st.msgs = slices.DeleteFunc(st.msgs, func(o stored) bool { return o.subject == r.Filter && o.seq < r.Seq })
	return map[string]any{"success": true, "purged": before - len(st.msgs)}, nil
}

func (s *Server) makeConsumer(stream, name string, request []byte) (any, *apiError) {
	st := s.streams[stream]
	if st == nil {
		return nil, errStreamNotFound
	}
	var r struct {
		Config json.RawMessage `json:"config"`
	}
	var config consumerConfig
	if json.Unmarshal(request, &r) != nil || json.Unmarshal(r.Config, &config) != nil {
		return nil, errBadRequest
	}
	c := st.consumers[name]
	if c == nil {
		c = &consumer{st: st, name: name, created: time.Now(), beat: time.Now(), next: 1, pending: make(map[uint64]*delivery)}
		st.consumers[name] = c
	}
	c.raw, c.config = r.Config, config
	if config.Filter != "" {
		c.filter = strings.Split(config.Filter, ".")
	}
	answer, fault := s.consumerInfo(stream, name) // now, because it counts the messages that are not delivered yet
	if config.DeliverSubject != "" {
		// Like the real server, send the answer before the first message.
		time.AfterFunc(0, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.up && st.consumers[name] == c {
				c.flow()
			}
		})
	}
	return answer, fault
}

func (s *Server) consumerInfo(stream, name string) (any, *apiError) {
	st := s.streams[stream]
	if st == nil {
		return nil, errStreamNotFound
	}
	c := st.consumers[name]
	if c == nil {
		return nil, errConsumerNotFound
	}
	return map[string]any{
		"stream_name": stream, "name": name, "created": c.created, "config": c.raw,
		"delivered": map[string]any{"consumer_seq": c.delivered, "stream_seq": c.next - 1},
		"ack_floor": map[string]any{"consumer_seq": 0, "stream_seq": 0}, "num_ack_pending": len(c.pending),
		"num_pending": c.waiting(), "num_waiting": len(c.pulls),
	}, nil
}

// pull records a client's request for messages.
func (s *Server) pull(stream, name string, m msg) {
	st := s.streams[stream]
	if st == nil || st.consumers[name] == nil {
		s.send(msg{subject: m.reply, header: []byte("NATS/1.0 503\r\n\r\n"), from: "nats"})
		return
	}
	var r struct {
		Batch   int           `json:"batch"`
		Bytes   int           `json:"max_bytes"`
		Expires time.Duration `json:"expires"`
		Every   time.Duration `json:"idle_heartbeat"`
		NoWait  bool          `json:"no_wait"`
	}
	if err := json.Unmarshal(m.data, &r); err != nil {
		panic(fmt.Sprintf("simnats: pull request %s: %v", m.data, err))
	}
	c := st.consumers[name]
	now := time.Now()
	p := &pull{reply: m.reply, left: max(r.Batch, 1), bytes: r.Bytes, expires: now.Add(r.Expires), every: r.Every, beat: now}
	if r.NoWait {
		p.expires = now.Add(sweepEvery)
	}
	c.pulls = append(c.pulls, p)
	c.flow()
	if i := slices.Index(c.pulls, p); r.NoWait && i >= 0 {
		c.pulls = slices.Delete(c.pulls, i, i+1)
		if p.left > 0 {
			s.send(msg{subject: m.reply, header: []byte("NATS/1.0 404 No Messages\r\n\r\n"), from: "nats"})
		}
	}
}
