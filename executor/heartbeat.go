package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// takenEvery is how often the executor logs that another process holds this instance's name.
const takenEvery = 10 * time.Second

// If this instance's name is taken, the executor first tries again soon and several times. The reason can be a message that is no
// heartbeat and that a dispatcher removes within milliseconds. Another process keeps the name, so then these tries change nothing.
const (
	takenAgain = 100 * time.Millisecond
	takenTries = 10
)

// contestedAgain is the distance of heartbeats while other clients write the key: a dispatcher may miss a heartbeat that is replaced at once.
const contestedAgain = 500 * time.Millisecond

// errLargeBeat means that the heartbeat, which contains all handlers and labels, is larger than wire.MaxHeartbeat.
var errLargeBeat = errors.New("the heartbeat is too large")

// beat sends heartbeats until ctx is done.
func (l *link) beat(ctx context.Context) {
	tick := time.NewTicker(wire.HeartbeatEvery)
	defer tick.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	healthy := true
	tries := 0 // since the name was taken
	var told time.Time
	for {
		// A heartbeat in flight at the end is completed, because goodbye needs its sequence number.
		err := l.sendBeat(context.WithoutCancel(ctx))
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNameTaken):
			if time.Since(told) >= takenEvery {
				told = time.Now()
				l.log.Error("another process of this group uses the name of this instance, no attempt starts here until that process "+
					"has ended: give each process its own name by Config.Instance, or --instance of belfry executor", "err", err)
			}
		case errors.Is(err, errLargeBeat):
			if healthy {
				l.log.Error("this instance has too many handlers or labels for a heartbeat, it gets no runs: divide the handlers among several groups", "err", err)
			}
		case err != nil && healthy:
			l.log.Warn("a heartbeat was not confirmed, retrying (no attempt starts after 10 s without one)", "err", err)
		case err == nil && !healthy:
			l.log.Info("heartbeats are confirmed again")
		}
		healthy = err == nil
		set(&l.unleased.heartbeat, beatReason(err))
		var again <-chan time.Time
		if errors.Is(err, errNameTaken) {
			if tries++; tries <= takenTries {
				again = time.After(takenAgain)
			}
		} else {
			tries = 0
			if l.hold.contested {
				again = time.After(contestedAgain)
			}
		}
		for due := false; !due; {
			select {
			case <-tick.C:
				due = true
			case <-again:
				due = true
			case <-l.beatSoon:
				due = true
			case <-look.C:
				l.engine.files.look(l.log)
				due = reasonOf(l.engine.unfit()) != l.reported
			case <-ctx.Done():
				return
			}
		}
	}
}

// beatReason says why a heartbeat was not confirmed. It is empty if the reason may lie outside the instance.
func beatReason(err error) string {
	switch {
	case errors.Is(err, errNameTaken):
		return nameTaken
	case errors.Is(err, errLargeBeat):
		return largeHeartbeat
	}
	return ""
}

// beatNow makes the executor send a heartbeat at once.
func (l *link) beatNow() { wake(l.beatSoon) }

func (l *link) sendBeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	beat, sent := l.engine.nextBeat()
	h := l.heartbeat(beat)
	l.reported = reasonOf(h.Unfit)
	data := wire.Encode(h)
	if len(data) > wire.MaxHeartbeat && h.Unfit != nil {
		h.Unfit = nil // offers are refused, which tells the dispatcher enough
		data = wire.Encode(h)
	}
	if len(data) > wire.MaxHeartbeat {
		return fmt.Errorf("%w: %d bytes, at most %d are taken", errLargeBeat, len(data), wire.MaxHeartbeat)
	}
	if err := l.write(ctx, sent, data); err != nil {
		return err
	}
	// The connection keeps the order of messages. Messages that the server sent before this confirmation are therefore
	// in the channel now, and later ones are not. One more is added for a message that has left the channel but is not
	// counted in taken yet.
	arrived := l.taken.Load() + int64(len(l.offers)) + 1
	if l.engine.confirmed(sent, arrived) {
		l.log.Warn("no heartbeat was confirmed for over 10 s because the process was frozen or NATS was unavailable, attempts that rely on earlier heartbeats do not start")
	}
	l.once.Do(func() { close(l.first) })
	return nil
}

func (l *link) heartbeat(beat int64) wire.Heartbeat {
	load := l.engine.load()
	return wire.Heartbeat{
		V: wire.Version, Instance: l.engine.instance, Group: l.config.Group, BootID: l.engine.boot, Beat: beat,
		Handlers: l.names, Languages: l.scripts, Capacity: load.Capacity, Running: load.Running, Seq: load.Seq, Labels: l.config.Labels,
		Version: l.config.Version, Host: l.host, StartedAt: wire.Time{Time: l.started}, Draining: load.Draining, Unfit: l.engine.unfit(),
	}
}

// goodbye deletes the heartbeat, so that dispatchers remove this instance from the roster at once. It is called when all
// results are settled, or when the wait for that has timed out. It does not delete another boot's heartbeat under the same name.
// settled says that all results are settled. Then the message tells dispatchers that attempts which are still bound to this boot
// have not started and never will.
func (l *link) goodbye(ctx context.Context, settled bool) {
	if connected, _ := l.ready(); connected {
		l.takeBack(ctx, settled)
	}
}

func (l *link) takeBack(ctx context.Context, settled bool) {
	if l.hold.seq == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	header := expecting(int64(l.hold.seq))
	header.Set("KV-Operation", "DEL")
	var body []byte
	if settled {
		body = wire.Encode(wire.Goodbye{V: wire.Version, SettledBoot: l.engine.boot})
	}
	if _, err := l.store(ctx, l.keySubject(), header, body); err != nil && !isWrongSequence(err) {
		l.log.Warn("cannot delete the heartbeat, it expires after 10 s", "err", err)
	}
}

// keySubject returns the subject of this instance's key in the bucket.
func (l *link) keySubject() string {
	return wire.InstanceSubject(wire.InstanceKey(l.config.Group, l.engine.instance))
}

// close ends the connection.
func (l *link) close() {
	if conn := l.connection(); conn != nil {
		conn.Close()
	}
}

func (l *link) connection() *nats.Conn { return l.conn.Load() }
