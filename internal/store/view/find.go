package view

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
	"github.com/belfryhq/belfry/internal/words"
)

const (
	findGroups = 10_000 // groups whose names a search reads
	findRows   = 4_000  // names of jobs that a search reads
	findCount  = 4_001  // up to which names with a word are counted, to begin with the rarest word: one more than a search reads
	findWithin = 10     // groups with some of the words in which a search looks for the others
	tagRows    = 10_000 // counts of tags that a list reads
)

// Found is what a search by the beginnings of words has found.
type Found struct {
	Groups []string
	Jobs   []FoundJob // those whose names have all words first, then short names first
	Tags   []string   // those of the most jobs first
}

// FoundJob is a job that a search has found.
type FoundJob struct {
	ID          domain.JobID
	Group, Name string
}

// Find finds groups, jobs and tags of some groups (nil: all), at most limit of each. In the name of a group, or in the names of a job and its group,
// each word of the text must be the beginning of a word, see package words. A tag must begin with the text. Find reads 4,000 names of jobs at most:
// if all words of the text are the beginnings of very many names, it may miss some jobs.
func (s *Store) Find(ctx context.Context, only []string, text string, limit int) (Found, error) {
	text = strings.TrimSpace(text)
	if text == "" || only != nil && len(only) == 0 {
		return Found{}, nil
	}
	f := &finder{s: s, ctx: ctx, only: only, search: words.Split(text), limit: limit, seen: map[domain.JobID]bool{}}
	if err := f.find(); err != nil {
		return Found{}, pgerr.Translate(err)
	}
	tags, err := s.Tags(ctx, only, text, limit)
	if lower := strings.ToLower(text); err == nil && len(tags) == 0 && lower != text {
		tags, err = s.Tags(ctx, only, lower, limit)
	}
	for _, t := range tags {
		f.out.Tags = append(f.out.Tags, t.Tag)
	}
	return f.out, err
}

// finder is one search.
type finder struct {
	s      *Store
	ctx    context.Context //nolint:containedctx // of one call
	only   []string
	search []string
	order  []int // the words, the rarest first
	limit  int
	read   int // names of jobs
	seen   map[domain.JobID]bool
	out    Found
}

// matchedGroup is a group whose name has some of the words.
type matchedGroup struct {
	name string
	has  []bool // by word
}

func (f *finder) find() error {
	if len(f.search) == 0 {
		return nil
	}
	matched, err := f.groups()
	if err != nil {
		return err
	}
	if err := f.sortWords(); err != nil {
		return err
	}
	if err := f.jobs(f.only, f.order[0]); err != nil {
		return err
	}
	// Jobs whose groups have the rarest word, and jobs that the walk above did not reach.
	for _, g := range matched[:min(len(matched), findWithin)] {
		if err := f.jobsOf(g); err != nil {
			return err
		}
	}
	slices.SortStableFunc(f.out.Jobs, func(a, b FoundJob) int {
		return cmp.Or(f.missing(a.Name)-f.missing(b.Name), len(a.Name)-len(b.Name), strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	f.out.Jobs = f.out.Jobs[:min(len(f.out.Jobs), f.limit)]
	return nil
}

// groups finds the groups with all words. It returns those with at least one, those with most words first.
func (f *finder) groups() ([]matchedGroup, error) {
	names, err := f.s.q.GroupNames(f.ctx, sqlcgen.GroupNamesParams{Only: f.only, MaxRows: findGroups})
	if err != nil {
		return nil, err
	}
	var matched []matchedGroup
	for _, name := range names {
		g := matchedGroup{name, words.Begin(f.search, name)}
		if slices.Contains(g.has, true) {
			matched = append(matched, g)
		}
		if !slices.Contains(g.has, false) && len(f.out.Groups) < f.limit {
			f.out.Groups = append(f.out.Groups, name)
		}
	}
	count := func(g matchedGroup) (n int) {
		for _, has := range g.has {
			if has {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(matched, func(a, b matchedGroup) int { return count(b) - count(a) })
	return matched, nil
}

// missing returns how many words the name of a job does not have.
func (f *finder) missing(name string) (n int) {
	for _, has := range words.Begin(f.search, name) {
		if !has {
			n++
		}
	}
	return n
}

// bounds returns the bounds of the beginnings of words that begin with a word.
func bounds(word string) (lo, hi string) {
	if r := []rune(word); len(r) > words.MaxStart {
		word = string(r[:words.MaxStart])
	}
	return word, word + "\U0010FFFF"
}

func (f *finder) sortWords() error {
	f.order = make([]int, len(f.search))
	p := sqlcgen.CountWordsParams{Most: findCount}
	for i, word := range f.search {
		lo, hi := bounds(word)
		f.order[i], p.Los, p.His = i, append(p.Los, lo), append(p.His, hi)
	}
	if len(f.search) == 1 {
		return nil
	}
	counts, err := f.s.q.CountWords(f.ctx, p)
	if err != nil {
		return err
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return cmp.Compare(counts[a].Names, counts[b].Names) })
	return nil
}

// jobsOf finds jobs of a group that has some of the words in its name.
func (f *finder) jobsOf(g matchedGroup) error {
	for _, i := range f.order {
		if !g.has[i] {
			return f.jobs([]string{g.name}, i)
		}
	}
	rows, err := f.s.q.FirstJobsOfGroup(f.ctx, sqlcgen.FirstJobsOfGroupParams{GroupName: g.name, MaxRows: int32(f.limit)})
	for _, r := range rows {
		f.add(FoundJob{domain.JobID(r.ID), g.name, r.Name})
	}
	return err
}

// jobs walks the jobs of some groups that have one of the words in their names, and adds those that have the others too.
func (f *finder) jobs(groups []string, word int) error {
	lo, hi := bounds(f.search[word])
	most := int32(findRows / 2)
	if len(groups) > 1 { // each group may have to be read to the end of the page
		most = max(most/int32(len(groups)), int32(f.limit))
	}
	p := sqlcgen.JobsByWordInGroupsParams{Groups: groups, AfterWord: lo, Hi: hi, MaxRows: min(int32(2*f.limit), most)}
	for len(f.out.Jobs) < f.limit && f.read < findRows {
		rows, err := f.page(p)
		if err != nil {
			return err
		}
		for _, r := range rows {
			f.add(FoundJob{domain.JobID(r.ID), r.GroupName, r.Name})
		}
		f.read += len(rows)
		if len(rows) < int(p.MaxRows) {
			return nil
		}
		last := rows[len(rows)-1]
		p.AfterWord, p.AfterJob, p.MaxRows = last.Word, last.ID, min(4*p.MaxRows, most)
	}
	return nil
}

func (f *finder) page(p sqlcgen.JobsByWordInGroupsParams) ([]sqlcgen.JobsByWordInGroupsRow, error) {
	if p.Groups != nil {
		return f.s.q.JobsByWordInGroups(f.ctx, p)
	}
	rows, err := f.s.q.JobsByWord(f.ctx, sqlcgen.JobsByWordParams{Hi: p.Hi, AfterWord: p.AfterWord, AfterJob: p.AfterJob, MaxRows: p.MaxRows})
	out := make([]sqlcgen.JobsByWordInGroupsRow, len(rows))
	for i, r := range rows {
		out[i] = sqlcgen.JobsByWordInGroupsRow(r)
	}
	return out, err
}

// add adds a job, unless the names of the job and its group lack a word.
func (f *finder) add(j FoundJob) {
	if f.seen[j.ID] || len(f.out.Jobs) == f.limit {
		return
	}
	f.seen[j.ID] = true
	ofGroup := words.Begin(f.search, j.Group)
	for i, has := range words.Begin(f.search, j.Name) {
		if !has && !ofGroup[i] {
			return
		}
	}
	f.out.Jobs = append(f.out.Jobs, j)
}

// TagCount is a tag, and the number of jobs that have it.
type TagCount struct {
	Tag  string
	Jobs int64
}

// Tags returns the tags that begin with a text, of the jobs of some groups (nil: all), those of the most jobs first. The counts are exact if the
// groups and their tags have 10,000 pairs at most. Otherwise tags of few jobs may be missing, or have too small a count.
func (s *Store) Tags(ctx context.Context, only []string, begin string, limit int) ([]TagCount, error) {
	lo, hi := begin, begin+"\U0010FFFF"
	scan := int32(max(tagRows/max(len(only), 1), 100))
	var tags []TagCount
	var err error
	switch {
	case only != nil && len(only) == 0:
	case only == nil && begin == "":
		var rows []sqlcgen.TagsRow
		rows, err = s.q.Tags(ctx, sqlcgen.TagsParams{MaxScan: scan, MaxRows: int32(limit)})
		for _, r := range rows {
			tags = append(tags, TagCount(r))
		}
	case only == nil:
		var rows []sqlcgen.TagsBetweenRow
		rows, err = s.q.TagsBetween(ctx, sqlcgen.TagsBetweenParams{Lo: lo, Hi: hi, MaxScan: scan, MaxRows: int32(limit)})
		for _, r := range rows {
			tags = append(tags, TagCount(r))
		}
	case begin == "":
		var rows []sqlcgen.TagsOfGroupsRow
		rows, err = s.q.TagsOfGroups(ctx, sqlcgen.TagsOfGroupsParams{Groups: only, MaxScan: scan, MaxRows: int32(limit)})
		for _, r := range rows {
			tags = append(tags, TagCount(r))
		}
	default:
		var rows []sqlcgen.TagsBetweenOfGroupsRow
		rows, err = s.q.TagsBetweenOfGroups(ctx, sqlcgen.TagsBetweenOfGroupsParams{Groups: only, Lo: lo, Hi: hi, MaxScan: scan, MaxRows: int32(limit)})
		for _, r := range rows {
			tags = append(tags, TagCount(r))
		}
	}
	return tags, pgerr.Translate(err)
}
