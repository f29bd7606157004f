package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/sim/memstore"
)

// user creates, edits and triggers the jobs of the plan, and kills runs. It represents people and programs that use the cluster.
type user struct {
	*journal
	db      *memstore.DB
	store   *memstore.Store
	cluster *cluster
	jobs    []domain.JobID // in the order of the plan

	mu    sync.Mutex
	kills map[domain.RunID]bool // the runs for which a kill was accepted
}

func newUser(j *journal, db *memstore.DB, c *cluster) *user {
	return &user{journal: j, db: db, store: db.Store(), cluster: c, kills: make(map[domain.RunID]bool)}
}

func (u *user) create(jobs []jobPlan) {
	for _, j := range jobs {
		spec := j.spec
		for _, c := range j.children {
			spec.Children = append(spec.Children, domain.Child{JobID: u.jobs[c], On: domain.OnSuccess})
		}
		made, err := u.store.CreateJob(context.Background(), spec, "sim")
		if err != nil {
			u.fail("create job %+v: %v", spec, err)
			continue
		}
		u.jobs = append(u.jobs, made.ID)
	}
}

func (u *user) edit(i int, change func(*domain.JobSpec)) {
	_, after, err := u.store.EditJob(context.Background(), u.jobs[i], 0, "sim", func(s *domain.JobSpec) error {
		change(s)
		return nil
	})
	if err == nil {
		u.event("user", fmt.Sprintf("edit job %d: version %d, enabled %v, %s", after.ID, after.Version, after.Enabled, after.Schedule.Kind))
	} else if domain.CodeOf(err) != domain.NotFound {
		u.fail("edit job %d: %v", u.jobs[i], err)
	}
}

func (u *user) trigger(i, n int) {
	for range n {
		ids, err := u.store.Trigger(context.Background(), u.jobs[i], domain.Trigger{Cause: domain.CauseManual})
		if err == nil {
			u.event("user", fmt.Sprintf("trigger job %d: run %s", u.jobs[i], ids[0]))
		}
	}
}

// remove deletes a job. The store refuses to delete a child of another job.
func (u *user) remove(i int) {
	if _, err := u.store.DeleteJob(context.Background(), u.jobs[i], 0, "sim"); err == nil {
		u.event("user", fmt.Sprintf("delete job %d", u.jobs[i]))
	}
}

// kill kills an unfinished run through the first process that accepts the request.
func (u *user) kill(draw uint64) {
	var ids []domain.RunID
	for _, r := range u.db.Runs() {
		if !r.State.Final() {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := ids[draw%uint64(len(ids))]
	for _, n := range u.cluster.nodes {
		p := n.process()
		if p == nil || p.firing.Load() == nil {
			continue
		}
		err := p.firing.Load().Kill(context.Background(), id, "sim")
		u.event("user", fmt.Sprintf("kill run %s by %s: %v", id, p.title, err))
		if err == nil {
			u.mu.Lock()
			u.kills[id] = true
			u.mu.Unlock()
			return
		}
	}
}

// disableAll ends the load.
func (u *user) disableAll() {
	for _, id := range u.jobs {
		if _, _, err := u.store.SetEnabled(context.Background(), id, false, 0, "sim"); err != nil && domain.CodeOf(err) != domain.NotFound {
			u.fail("disable job %d: %v", id, err)
		}
	}
}
