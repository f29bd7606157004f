package group

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/group/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// bootText is the maximum size in bytes of the version and the host of a process. The rest of a longer text is cut off.
const bootText = 200

// SeeBoots records processes of executors, each with the version and host in its heartbeat. If a process is already recorded, only
// the time when it was last seen changes. instances has each boot id of a group once.
func (s *Store) SeeBoots(ctx context.Context, instances []domain.Instance) error {
	// The order is the same in all dispatchers, so that they do not deadlock.
	instances = slices.Clone(instances)
	slices.SortFunc(instances, func(a, b domain.Instance) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.BootID, b.BootID))
	})
	var p sqlcgen.SeeBootsParams
	for _, i := range instances {
		p.Groups, p.Boots, p.Instances = append(p.Groups, i.Group), append(p.Boots, i.BootID), append(p.Instances, i.ID)
		p.Versions, p.Hosts = append(p.Versions, storable(i.Version)), append(p.Hosts, storable(i.Host))
	}
	return pgerr.Translate(s.q.SeeBoots(ctx, p))
}

// storable shortens a text of an executor, and removes what Postgres does not store.
func storable(text string) string {
	if len(text) > bootText {
		end := bootText
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}
