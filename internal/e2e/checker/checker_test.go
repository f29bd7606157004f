package checker

import (
	"testing"
	"time"
)

func TestAcceptsAcks(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"an acknowledged edit": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 2, At: p.Versions[1].From.Add(-20 * time.Millisecond)})
		},
	})
}

func TestRejectsAcks(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"an acknowledged version that does not exist", RuleAck, func(p *planted) { p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 7}) }},
		{"an edit that takes effect later", RuleAck, func(p *planted) {
			p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 2, At: p.Versions[1].From.Add(-3 * time.Second)})
		}},
		{"an acknowledged run that does not exist", RuleAck, func(p *planted) {
			p.Acks = append(p.Acks, Ack{What: "trigger", Job: 1, Run: "nowhere", Tag: "x"})
		}},
		{"a trigger with two runs", RuleAck, func(p *planted) {
			p.at(1, 3).Param, p.at(1, 4).Param = "x", "x"
			p.Acks = append(p.Acks, Ack{What: "trigger", Job: 1, Run: p.at(1, 3).ID, Tag: "x"})
		}},
	})
}
