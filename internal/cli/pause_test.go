package cli

import "testing"

// --all pauses the groups that are not paused, and ends only pauses with its reason.
func TestPauseAllGroups(t *testing.T) {
	newRealConsole(t)
	belfry(t, "", "group", "create", "tools").want(t, ExitDone)
	belfry(t, "", "group", "create", "web").want(t, ExitDone)
	belfry(t, "", "group", "pause", "tools", "--reason", "new disks").want(t, ExitDone)
	belfry(t, "", "group", "pause", "--all", "--reason", "move").want(t, ExitDone, "default paused\nweb paused\n")
	belfry(t, "", "group", "get", "tools").want(t, ExitDone, ": new disks")
	belfry(t, "", "group", "resume", "--all", "--reason", "move").want(t, ExitDone, "default resumed\nweb resumed\n")
	belfry(t, "", "group", "get", "tools").want(t, ExitDone, ": new disks")
	for _, args := range [][]string{
		{"group", "pause", "--reason", "x"}, {"group", "pause", "web", "--all", "--reason", "x"},
		{"group", "resume"}, {"group", "resume", "--all"}, {"group", "resume", "web", "--reason", "x"},
	} {
		belfry(t, "", args...).want(t, ExitUsage)
	}
}
