package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Channels knows the alert channels.
type Channels interface {
	// ChannelsFor returns those of the named channels that operators may give to jobs of the group.
	ChannelsFor(ctx context.Context, group string, names []string) ([]string, error)
}

// CheckChannels refuses alert channels that the caller may not give to the job. The answer is the same as for channels that do
// not exist. before is the job before the change, nil for a new one: it keeps its channels while it stays in its group.
func CheckChannels(ctx context.Context, channels Channels, id auth.Identity, before *domain.JobSpec, spec domain.JobSpec) error {
	names := spec.Alert.Channels
	if id.Role == account.Admin || len(names) == 0 || len(names) > domain.MaxAlertChannels {
		return nil // the store refuses too many channels, and for an admin those that do not exist
	}
	usable, err := channels.ChannelsFor(ctx, spec.Group, names)
	if err != nil {
		return err
	}
	if before != nil && before.Group == spec.Group {
		usable = append(usable, before.Alert.Channels...)
	}
	var f domain.Faults
	for i, name := range names {
		if domain.ValidChannelName(name) && !slices.Contains(usable, name) {
			f.Add(fmt.Sprintf("alert.channels[%d]", i), domain.NoChannel(name))
		}
	}
	return f.Err("the job is not valid")
}
